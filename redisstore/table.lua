-- table: a small table of texts, each of which expires by itself.
--
-- KEYS[1]  a hash: its fields are ids, its values the millisecond from which on
--          an entry is no more, a colon, and the text
-- ARGV[1]  the time, see each.lua
-- ARGV[2]  put, remove or all
-- ARGV[3]  of put and remove: the id
-- ARGV[4]  of put: for how many milliseconds
-- ARGV[5]  of put: how many entries there may be
-- ARGV[6]  of put: the text
-- returns  all: ids and texts in turn; else 1, or 0 where the table is full or
--          nothing was to be removed
--
-- What has expired is removed first, and what this script did not write.

local key, what, id, life = KEYS[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local has, live = {}, {}
local found = call('HGETALL', key)
for i = 1, #found, 2 do
	local field, value = found[i], found[i + 1]
	local colon = string.find(value, ':', 1, true)
	local expiry = colon and tonumber(string.sub(value, 1, colon - 1))
	if expiry and expiry * 1000 > now then
		has[field] = true
		live[#live + 1] = field
		live[#live + 1] = string.sub(value, colon + 1)
	else
		call('HDEL', key, field)
	end
end
if what == 'all' then
	return live
end
if what == 'remove' then
	return has[id] and call('HDEL', key, id) or 0
end
if not has[id] and #live >= 2 * tonumber(ARGV[5]) then
	return 0
end
local expiry = math.ceil(now / 1000) + life
call('HSET', key, id, string.format('%.0f:', expiry) .. ARGV[6])
local ms = ttl(expiry * 1000)
if call('PTTL', key) < ms then
	call('PEXPIRE', key, ms)
end
return 1
