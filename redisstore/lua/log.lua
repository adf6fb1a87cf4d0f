-- log: sliding-log and sliding-buckets, as one packed string.
--
-- value    cells, oldest first: a stamp (7 bytes) and the running total of
--          units up to it (3 bytes; 5 for buckets), which wraps around. The
--          first cell is the base: its total is that before the next cell, its
--          stamp the start of this life of the key or one that has left the
--          window. Every other cell has a unit or more.
-- tells    the newest stamp (7 bytes), live units (5), the stamp of the last
--          unit in the way of what did not fit (7)
-- mirrors  internal/algo/log.go
--
-- Cells are numbered from the newest, 1. The last ones are read at once. Where
-- the window begins is guessed: it holds all of a young log, and Max cells when
-- it is full of unit costs. Else it is searched for.

--- functions
-- search finds the oldest of the cells 1..hi for which inside(stamp, total)
-- holds: it does for cell 1, and for all newer than one for which it does. There
-- is a cell hi+1. It returns its number, stamp and total, and the total before.
local function search(key, size, cell, hi, inside)
	-- A length that is not whole cells must not go on for ever.
	local j, beyond = 1, math.floor(hi) + 1
	while beyond - j > 200 do
		local mid = math.floor((j + beyond) / 2)
		if inside(unpack(cell, call('GETRANGE', key, -size * mid, -size * mid + size - 1))) then j = mid else beyond = mid end
	end
	-- The rest is read at once.
	local text, top = call('GETRANGE', key, -size * beyond, -size * j + size - 1), beyond
	while beyond - j > 1 do
		local mid = math.floor((j + beyond) / 2)
		if inside(unpack(cell, text, (top - mid) * size + 1)) then j = mid else beyond = mid end
	end
	local _, before = unpack(cell, text, (top - beyond) * size + 1)
	local stamp, total = unpack(cell, text, (top - j) * size + 1)
	return j, stamp, total, before
end

--- look
-- T and N are the newest stamp and total; live counts the units in the span
-- before max(now, T): those of the newest `back` cells (ALL: of all but the
-- base), of which old and sum are the oldest's, and base is the total before.
local ALL = 4294967296
local most = max < 14 and max + 2 or 16
local tail = call('GETRANGE', key, -SIZE * most, -1)
local m = #tail / SIZE
local live, T, N, back, base, old, sum, _ = 0, 0, 0, 0, 0, 0, 0
if m > 0 then
	T, N = unpack(CELL, tail, SIZE * m - SIZE + 1)
end
if m > 1 then
	local edge = (now > T and now or T) - span
	local ahead = T - now > window -- the clock has stepped back: as if taken now
	if ahead then edge = T - window end
	if T > edge then
		local whole, first = m < most, SIZE + 1
		if whole then -- all cells are in the tail
			_, base = unpack(CELL, tail)
			back = m - 1
			for i = SIZE + 1, SIZE * m, SIZE do
				old, sum = unpack(CELL, tail, i)
				if old > edge then break end
				base, back = sum, back - 1
			end
		else
			if max >= 14 then
				tail, first = call('GETRANGE', key, -SIZE * (max + 1), -SIZE * (max - 1) + SIZE - 1), 1
			end
			if #tail < 3 * SIZE then
				_, base, old, sum = unpack(CELL2, call('GETRANGE', key, 0, 2 * SIZE - 1))
				if old > edge then back = ALL end
			elseif max > 1 then
				local t, s, u, v, w, x = unpack(CELL3, tail, first)
				if u > edge and (t <= edge or call('STRLEN', key) == SIZE * (max + 1)) then
					back, base, old, sum = max, s, u, v
				elseif u <= edge and w > edge then
					back, base, old, sum = max - 1, v, w, x
				end
			end
		end
		if back == 0 then
			local cells = call('STRLEN', key) / SIZE
			back, old, sum, base = search(key, SIZE, CELL, cells - 1, function(t) return t > edge end)
		end
		live = (N - base) % WRAP
	end
	if ahead then
		T, back, base, old, sum = now, 1, (N - live) % WRAP, now, N
		call('SET', key, pack(CELL2, now, base, now, N), 'PX', ttl(now - now % 1000000 + 1000000 + window))
	end
	m = 2
end
local fits = live + cost <= max

--- tell
local blocking = 0
if done == 0 and not fits and cost <= max then
	local room = max - cost
	blocking = old
	if (N - sum) % WRAP > room then
		local hi = math.min(room + 1, back, call('STRLEN', key) / SIZE - 1) -- each cell has a unit or more
		_, blocking = search(key, SIZE, CELL, hi, function(_, total) return (N - total) % WRAP <= room end)
	end
end
local told = pack('>I7BI7I5I7', now, done, T, live, blocking)

--- charge
local stamp = (m < 2 or now > T) and now or T
if cost > WRAP / 2 - 1 - live then cost = WRAP / 2 - 1 - live end
N = (N + cost) % WRAP
local cell = pack(CELL, stamp, N)
-- The key lives for a Window after the end of this second, so for all its charges.
local second = stamp - stamp % 1000000
local expire = second + 1000000 + window
if cost == 0 then -- no more is remembered
	stamp = T
elseif live == 0 then
	local birth = (m == 0 or now < T) and now or T
	call('SET', key, pack(CELL, birth, (N - cost) % WRAP) .. cell, 'PX', ttl(expire))
else
	local cells
	if stamp - stamp % part == T - T % part then
		cells = call('STRLEN', key) / SIZE
		call('SETRANGE', key, (cells - 1) * SIZE, cell)
	else
		cells, back = call('APPEND', key, cell) / SIZE, back + 1
	end
	if now < T or T < second then call('PEXPIRE', key, ttl(expire)) end
	if back > cells - 1 then back = cells - 1 end
	local kept = cells
	if live + cost > 2 * max then
		-- The stamps of the units above 2*Max are forgotten: the cells of the first
		-- units beyond become one, with the newest of their stamps.
		kept = 1 + (search(key, SIZE, CELL, back, function(_, total) return (N - total) % WRAP < 2 * max end))
	end
	if kept < back then
		local head = call('GETRANGE', key, -SIZE * (back + 1), -SIZE * back - 1)
		call('SET', key, head .. call('GETRANGE', key, -SIZE * kept, -1), 'PX', ttl(expire))
	elseif cells > back + 16 then
		-- A string that outgrows its room gets twice as much, and a new one of which
		-- more than a tenth would be free gets none to spare. Rooms are of whole
		-- steps, a quarter of a power of two. So what has left the window is cut when
		-- the room for the live cells and a few more is full, and enough kept to fill
		-- ten elevenths of it.
		local size = (1.09 * back + 9) * SIZE + 6
		local step = 2 ^ (math.floor(math.log(size) / math.log(2)) - 2)
		local room = math.ceil(size / step) * step - 6
		if cells * SIZE > room then
			kept = math.max(back + 1, math.ceil(room / 1.1 / SIZE))
			call('SET', key, call('GETRANGE', key, -SIZE * kept, -1), 'PX', ttl(expire))
		end
	end
end
T, live = stamp, live + cost

--- refund
-- Writes the whole log anew, and changes the cells from the receipt's on, which
-- takes about a microsecond each.
local function rewrite(text)
	if #text > SIZE then
		local t = unpack(CELL, text, #text - SIZE + 1)
		call('SET', key, text, 'PX', ttl(t - t % 1000000 + 1000000 + window))
	else
		call('DEL', key)
	end
end
if live > 0 then
	local cells = call('STRLEN', key) / SIZE
	if back > cells - 1 then back = cells - 1 end
	local birth = unpack(CELL, call('GETRANGE', key, -SIZE * (back + 1), -SIZE * back - 1))
	local from = stamp - stamp % part
	if oldest then
		given = cost < live and cost or live
		local left, text = live - given, ''
		if left > 0 then
			local j = search(key, SIZE, CELL, back, function(_, total) return (N - total) % WRAP < left end)
			text = call('GETRANGE', key, -SIZE * j, -1)
		end
		rewrite(pack(CELL, birth, (N - left) % WRAP) .. text)
	elseif stamp >= birth and T >= from then
		local j, at, total, before = search(key, SIZE, CELL, back, function(t) return t >= from end)
		if at < from + part then
			local units = (total - before) % WRAP
			given = cost < units and cost or units
			local kept, text = {}, call('GETRANGE', key, -SIZE * j, -1)
			for i = given == units and SIZE + 1 or 1, #text, SIZE do
				local t, n = unpack(CELL, text, i)
				kept[#kept + 1] = pack(CELL, t, (n - given) % WRAP)
			end
			-- With the base, without what has left the window.
			local older = call('GETRANGE', key, -SIZE * (back + 1), -SIZE * j - 1)
			rewrite(older .. table.concat(kept))
		end
	end
end
