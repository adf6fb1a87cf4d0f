-- window: fixed-window, as one packed string.
--
-- value    the start of the window (7 bytes), the units taken in it (5), the
--          newest stamp (7), the start of this life of the key (7)
-- tells    the value
-- mirrors  internal/algo/window.go; Part is 1 where windows start at multiples
--          of Window

--- functions

--- look
local value = call('GET', key)
local T, N, V, birth = 0, 0, 0, now
if value then T, N, V, birth = unpack('>I7I5I7I7', value) end
local start = part == 1 and now - now % window or now
if V - now > window and N > 0 then -- the clock has stepped back: as if taken now
	T, V = start, now
	call('SETRANGE', key, 0, pack('>I7I5I7I7', T, N, V, birth)) -- it expires when it did
end
local used = now < T + window and N or 0
local fits = used + cost <= max

--- tell
local told = pack('>I7BI7I5I7I7', now, done, T, N, V, birth)

--- charge
if used == 0 then T, V = start, now end
if now > V then V = now end
N = used + cost
if N > 4294967296 then N = 4294967296 end
call('SET', key, pack('>I7I5I7I7', T, N, V, birth), 'PX', ttl(T + window))

--- refund
if oldest or born == birth and stamp == T then
	given = cost < used and cost or used
	if given > 0 then
		call('SETRANGE', key, 0, pack('>I7I5I7I7', T, N - given, V, birth)) -- it expires when it did
	end
end
