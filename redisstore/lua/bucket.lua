-- bucket: token-bucket, as one packed string.
--
-- value    the stamp T (7 bytes), the units owed at T (5), how much of the next
--          has drained, in units of 1/Window (6), the units that have ever
--          drained or been given back (7), those given back (4), the start of
--          this life of the key (7)
-- tells    the value
-- mirrors  internal/algo/bucket.go

--- functions

--- look
local value = call('GET', key)
local T, N, R, V, M, birth = 0, 0, 0, 0, 0, now
if value then T, N, R, V, M, birth = unpack('>I7I5I6I7I4I7', value) end
if T - now > window and N > 0 then -- the clock has stepped back: as if taken now
	T = now
	call('SETRANGE', key, 0, pack('>I7I5I6I7I4I7', T, N, R, V, M, birth)) -- it expires when it did
end
-- The bucket as of now.
local owed, rest, drained = N, R, V
if now > T and N > 0 then
	local q, r = muldiv(now - T, max, R, window)
	if q >= N then
		owed, rest, drained = 0, 0, (V + N) % 4503599627370496
	else
		owed, rest, drained = N - q, r, (V + q) % 4503599627370496
	end
end
local fits = owed + cost <= burst

--- tell
local told = pack('>I7BI7I5I6I7I4I7', now, done, T, N, R, V, M, birth)

--- charge
if owed == 0 or now > T then T = now end
N, R, V = owed + cost, rest, drained
if N > 4294967296 then N = 4294967296 end
call('SET', key, pack('>I7I5I6I7I4I7', T, N, R, V, M, birth), 'PX', ttl(T + (muldiv(window, N - 1, window - R + max - 1, max))))

--- refund
local left = R
if oldest then
	given, left = cost < owed and cost or owed, 0
elseif born == birth then
	-- Units in line between two places; none if the second lies before the first.
	local function distance(a, b)
		local d = (b - a) % 4503599627370496
		return d <= 2251799813685248 and d or 0
	end
	local line = distance(V, place)
	local waited = distance(place - level, V) - (M - backed) % 2147483648
	local own = cost - (waited > 0 and waited or 0)
	if R > 0 and T ~= stamp then own = own - 1 end
	given = line > own and line or own
	if given > cost then given = cost end
	if given > owed then given = owed end
	if given == line and given > own then left = 0 end
	if given < 0 then given = 0 end
end
if given > 0 then
	N, V, M = N - given, (V + given) % 4503599627370496, (M + given) % 2147483648
	call('SETRANGE', key, 0, pack('>I7I5I6I7I4I7', T, N, N > 0 and left or 0, V, M, birth)) -- it expires when it did
end
