-- list: decides the rows of a list all-or-nothing, in one step.
--
-- KEYS[i]    the state of row i; only rows of different modes may share one
-- ARGV[1]    the time, see each.lua
-- ARGV[1+i]  row i: mode, Max, Burst, Window, Part, cost (of all requests that
--            it stands for), the number of its algorithm
-- ARGV[2+n]  given in verify mode: each row's reply is followed by what it saw
--            and what it left, each as its time to live in milliseconds plus 2
--            (7 bytes), its length (4) and its value
-- returns    the rows' replies, as one.lua has them
-- mirrors    Memory.Take: Peek rows see the states before the list; then
--            Enforce, Shadow and Record rows are charged, in this order

local n, verify = #KEYS, #ARGV > #KEYS + 1
local looks = {}

-- A look returns whether the row fits, how to tell that, and how to charge it.
@kinds
looks[@kind] = function(key, max, burst, window, part, cost)
	local span = window
	@look
	return fits, function()
		local done = 0
		@tell
		return told
	end, function()
		local done = 1
		@charge
		@tell
		return told
	end
end
@end

local function dump(key)
	local text
	if call('TYPE', key).ok == 'zset' then
		text = table.concat(call('ZRANGE', key, 0, -1, 'WITHSCORES'), ' ')
	else
		text = call('GET', key) or ''
	end
	return pack('>I7I4', call('PTTL', key) + 2, #text) .. text
end

local modes, fits, tell, charge, saw, told = {}, {}, {}, {}, {}, {}
local function look(i)
	if verify then saw[i] = dump(KEYS[i]) end
	local mode, max, burst, window, part, cost, kind = unpack('>BI4I4I6I6I6B', ARGV[i + 1])
	modes[i] = mode
	fits[i], tell[i], charge[i] = looks[kind](KEYS[i], max, burst, window, part, cost)
end
local function answer(i, how)
	told[i] = how()
	if verify then told[i] = told[i] .. saw[i] .. dump(KEYS[i]) end
end

local admitted = true
for i = 1, n do
	look(i)
	if modes[i] == 0 and not fits[i] then admitted = false end
end
for i = 1, n do
	if not admitted or modes[i] == 2 then answer(i, tell[i]) end
end
local changed = {}
for mode = admitted and 0 or 3, 3 do
	for i = 1, n do
		if modes[i] == mode and mode ~= 2 then
			if changed[KEYS[i]] then look(i) end
			if fits[i] or mode == 3 then
				answer(i, charge[i])
				changed[KEYS[i]] = true
			else
				answer(i, tell[i])
			end
		end
	end
end
return table.concat(told)
