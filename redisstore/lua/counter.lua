-- counter: sliding-counter, as one packed string.
--
-- value    the start of the current window (7 bytes), its units (5), those of
--          the window before (5), the newest stamp (7), the start of this life
--          of the key (7)
-- tells    the value
-- mirrors  internal/algo/counter.go

--- functions

--- look
local value = call('GET', key)
local T, N, R, V, birth = 0, 0, 0, 0, now
if value then T, N, R, V, birth = unpack('>I7I5I5I7I7', value) end
if V - now > window and N + R > 0 then -- the clock has stepped back: as if taken now
	T, V = now, now
	call('SETRANGE', key, 0, pack('>I7I5I5I7I7', T, N, R, V, birth)) -- it expires when it did
end
-- The windows as of now.
local start, current, previous = T, N, R
if N == 0 and (R == 0 or now >= T + window) or now >= T + 2 * window then
	start, current, previous = now, 0, 0
elseif now >= T + window then
	start, current, previous = T + window, 0, N
end
local left = window
if now > start then left = start + window - now end
local fits = current + muldiv(left, previous, window - 1, window) + cost <= max

--- tell
local told = pack('>I7BI7I5I5I7I7', now, done, T, N, R, V, birth)

--- charge
if current == 0 and previous == 0 or now > V then V = now end
T, N, R = start, current + cost, previous
if N > 4294967296 then N = 4294967296 end
call('SET', key, pack('>I7I5I5I7I7', T, N, R, V, birth), 'PX', ttl(T + 2 * window))

--- refund
local of_current, of_previous = 0, 0
if oldest then
	of_previous = cost < previous and cost or previous
	of_current = cost - of_previous < current and cost - of_previous or current
elseif born == birth and stamp == start then
	of_current = cost < current and cost or current
elseif born == birth and stamp == start - window then
	of_previous = cost < previous and cost or previous
end
given = of_current + of_previous
if given > 0 then
	call('SETRANGE', key, 0, pack('>I7I5I5I7I7', start, current - of_current, previous - of_previous, V, birth)) -- it expires when it did
end
