-- sortedset: sliding-log as a sorted set, for people to inspect.
--
-- value    a member a charge, scored by its stamp in microseconds: the running
--          total of units up to and including it, in 16 digits, a colon, and its
--          own units. So no two members are alike, and those of one stamp are in
--          the order of their charges. A total less its own units is the total
--          before, but for the oldest member.
-- tells    the newest stamp (7 bytes), live units (5), the stamp of the last
--          unit in the way of what did not fit (7)
-- mirrors  internal/algo/log.go
--
-- A charge removes what has left the window. A look must not: when the clock
-- steps back before the next charge, that counts again.

--- functions
local function member(total, units) return string.format('%016.0f:%.0f', total, units) end

-- parse returns the total and the units of a member.
local function parse(text) return tonumber(string.sub(text, 1, 16)), tonumber(string.sub(text, 18)) end

-- lifetime is that of a key whose newest stamp is given: a Window after the end
-- of the stamp's second, so for all charges of that second.
local function lifetime(stamp, window) return ttl(stamp - stamp % 1000000 + 1000000 + window) end

-- holder finds the unit before the last `after` of the total N: it returns the
-- stamp and the total of its member, and how many members there are from that on.
-- Where every cost is 1, that is one more than there are units after it.
local function holder(key, N, after)
	local function at(j)
		local found = call('ZRANGE', key, -j, -j, 'WITHSCORES')
		if found[1] then return tonumber(found[2]), parse(found[1]) end
	end
	local stamp, total, units = at(after + 1)
	if stamp and N - total == after and units > 0 then return stamp, total, after + 1 end
	local j, beyond = 1, call('ZCARD', key) + 1
	while beyond - j > 1 do
		local mid = math.floor((j + beyond) / 2)
		stamp, total = at(mid)
		if N - total <= after then j = mid else beyond = mid end
	end
	stamp, total = at(j)
	return stamp, total, j
end

--- look
-- T and N are the newest stamp and total; live counts the units in the span
-- before max(now, T). The first of their members is stamped old; its total is
-- sum, and base the one before.
local T, N, live, edge, old, base, sum, units, stale = 0, 0, 0, 0, 0, 0, 0
local newest = call('ZREVRANGE', key, '0', '0', 'WITHSCORES')
if newest[1] then
	T, N = tonumber(newest[2]), parse(newest[1])
	edge = (now > T and now or T) - span
	local ahead = T - now > window -- the clock has stepped back: as if taken now
	if ahead then edge = T - window end
	if T > edge then
		-- It is mostly of rank 0 or 1, and a score takes longer to find.
		local first = call('ZRANGE', key, '0', '0', 'WITHSCORES')
		stale = tonumber(first[2]) <= edge
		if stale then first = call('ZRANGE', key, '1', '1', 'WITHSCORES') end
		if tonumber(first[2]) <= edge then first = call('ZRANGEBYSCORE', key, edge + 1, '+inf', 'WITHSCORES', 'LIMIT', '0', '1') end
		old, sum, units = tonumber(first[2]), parse(first[1])
		base = sum - units
		live = N - base
	end
	if ahead then
		T, N, edge, old, base, sum = now, live, now - window, now, 0, live
		call('DEL', key)
		call('ZADD', key, T, member(N, live))
		call('PEXPIRE', key, lifetime(T, window))
	end
end
local fits = live + cost <= max

--- tell
local blocking = 0
if done == 0 and not fits and cost <= max then
	blocking = old
	if N - sum > max - cost then blocking = holder(key, N, max - cost) end
end
local told = pack('>I7BI7I5I7', now, done, T, live, blocking)

--- charge
local stamp = now > T and now or T
if cost > 8388607 - live then cost = 8388607 - live end
if cost == 0 then -- no more is remembered
	stamp = T
else
	if live == 0 then
		if T > 0 then call('DEL', key) end
		N = 0
	end
	N = N + cost
	call('ZADD', key, stamp, member(N, cost))
	if live == 0 or now < T or T < stamp - stamp % 1000000 then call('PEXPIRE', key, lifetime(stamp, window)) end
	if live > 0 and stale then call('ZREMRANGEBYSCORE', key, '-inf', edge) end
	if live > 0 and N - sum >= 2 * max then
		-- The stamps of the units above 2*Max are forgotten: what was charged before
		-- the stamp of the first of the 2*Max becomes one member, stamped as its newest.
		local first = holder(key, N, 2 * max - 1)
		local last = call('ZREVRANGEBYSCORE', key, first - 1, '-inf', 'WITHSCORES', 'LIMIT', '0', '1')
		if last[1] then
			local total = parse(last[1])
			call('ZREMRANGEBYSCORE', key, '-inf', last[2])
			call('ZADD', key, last[2], member(total, total - base))
		end
	end
end
T, live = stamp, live + cost

--- refund
local since, first, last
if oldest then
	given = cost < live and cost or live
elseif stamp > edge then
	since = call('ZRANGEBYSCORE', key, stamp, '+inf', 'WITHSCORES')
	for i = 1, #since, 2 do
		if tonumber(since[i + 1]) > stamp then break end
		local total, n = parse(since[i])
		first, last = first or total - n, total
	end
	if first then given = cost < last - first and cost or last - first end
end
if given > 0 and given == live then
	call('DEL', key)
elseif given > 0 then
	if oldest then
		local at, total, j = holder(key, N, live - given - 1)
		call('ZREMRANGEBYRANK', key, '0', -j)
		call('ZADD', key, at, member(total, total - base - given))
	else
		-- The totals since change, so this takes a write of every charge since.
		call('ZREMRANGEBYSCORE', key, stamp, '+inf')
		for i = 1, #since, 2 do
			local total, n = parse(since[i])
			if total > last then
				total = total - given
			elseif total > last - given then
				total, n = last - given, n - (total - last + given)
			end
			if n > 0 then call('ZADD', key, since[i + 1], member(total, n)) end
		end
		T = holder(key, N - given, 0)
		call('ZREMRANGEBYSCORE', key, T + 1, '+inf')
	end
	call('ZREMRANGEBYSCORE', key, '-inf', edge)
	call('PEXPIRE', key, lifetime(T, window))
end
