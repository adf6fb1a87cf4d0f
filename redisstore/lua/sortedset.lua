-- sortedset: sliding-log as a sorted set, for people to inspect.
--
-- value    a member a charge, scored by its stamp in microseconds: the running
--          total of units up to and including it, in 16 digits, a colon, and its
--          own units. So no two members are the same, and those of one stamp are
--          in the order of their charging.
-- tells    the newest stamp (7 bytes), live units (5), the stamp of the last
--          unit in the way of what did not fit (7)
-- mirrors  internal/algo/log.go
--
-- A total less its own units is the total before, but for the oldest member.
-- Charges remove what has left the window. A look does not, since a clock that
-- steps back brings that back until something is charged.

--- functions
local function member(total, units) return string.format('%016.0f:%.0f', total, units) end

-- parse returns the total and the units of a member.
local function parse(text) return tonumber(string.sub(text, 1, 16)), tonumber(string.sub(text, 18)) end

-- holder returns the rank from the newest, the stamp and the total of the member
-- that holds the unit with so many units after it, up to the total N. Where all
-- costs are 1, it has as many members after it.
local function holder(key, N, after)
	local function at(j)
		local found = call('ZRANGE', key, -j, -j, 'WITHSCORES')
		if found[1] then return tonumber(found[2]), parse(found[1]) end
	end
	local stamp, total, units = at(after + 1)
	if stamp and N - total == after and units > 0 then return after + 1, stamp, total end
	local j, beyond = 1, call('ZCARD', key) + 1
	while beyond - j > 1 do
		local mid = math.floor((j + beyond) / 2)
		stamp, total = at(mid)
		if N - total <= after then j = mid else beyond = mid end
	end
	return j, at(j)
end

--- look
-- T and N are the newest stamp and total; live counts the units in the span
-- before max(now, T), of which the oldest are stamped old, with the totals base
-- before them and sum with them.
local newest = call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
local T, N, live, edge, old, base, sum = 0, 0, 0, 0, 0, 0, 0
if newest[1] then
	T, N = tonumber(newest[2]), parse(newest[1])
	edge = (now > T and now or T) - span
	local ahead = T - now > window -- the clock has stepped back: as if taken now
	if ahead then edge = T - window end
	if T > edge then
		local first, units = call('ZRANGEBYSCORE', key, edge + 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
		old, sum, units = tonumber(first[2]), parse(first[1])
		base = sum - units
		live = N - base
	end
	if ahead then
		T, N, edge, old, base, sum = now, live, now - window, now, 0, live
		call('DEL', key)
		call('ZADD', key, T, member(N, live))
		call('PEXPIRE', key, ttl(T - T % 1000000 + 1000000 + window))
	end
end
local fits = live + cost <= max

--- tell
local blocking, _ = 0
if done == 0 and not fits and cost <= max then
	blocking = old
	if N - sum > max - cost then _, blocking = holder(key, N, max - cost) end
end
local told = pack('>I7BI7I5I7', now, done, T, live, blocking)

--- charge
local stamp = now > T and now or T
if cost > 8388607 - live then cost = 8388607 - live end
if live == 0 then
	if T > 0 then call('DEL', key) end
	N = 0
end
N = N + cost
call('ZADD', key, stamp, member(N, cost))
-- The key lives for a Window after the end of this second, so for all its charges.
local second = stamp - stamp % 1000000
if live == 0 or now < T or T < second then call('PEXPIRE', key, ttl(second + 1000000 + window)) end
if live > 0 then
	call('ZREMRANGEBYSCORE', key, '-inf', stamp - window)
	if N - sum >= 2 * max then
		-- The stamps of the units above 2*Max are forgotten: all that were charged
		-- before the first of the 2*Max become one member, with the newest stamp.
		local _, first = holder(key, N, 2 * max - 1)
		local last = call('ZREVRANGEBYSCORE', key, first - 1, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
		if last[1] then
			local total = parse(last[1])
			call('ZREMRANGEBYSCORE', key, '-inf', last[2])
			call('ZADD', key, last[2], member(total, total - base))
		end
	end
end
T, live = stamp, live + cost

--- refund
-- A receipt takes a write of all that was charged since.
if oldest then
	given = cost < live and cost or live
	if given == live then
		call('DEL', key)
	elseif given > 0 then
		local j, at, total = holder(key, N, live - given - 1)
		call('ZREMRANGEBYRANK', key, 0, -j)
		call('ZADD', key, at, member(total, total - base - given))
	end
elseif stamp > edge and stamp <= T then
	local since = call('ZRANGEBYSCORE', key, stamp, '+inf', 'WITHSCORES')
	local left, total = 0
	for i = 1, #since, 2 do
	end
end
