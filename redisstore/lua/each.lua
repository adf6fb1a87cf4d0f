-- each: how every script begins.
--
-- ARGV[1]  the time in microseconds, or '' for the server's clock
--
-- Integers are packed, since tostring and .. keep 14 digits of a number. TIME
-- is read once, since it goes on within a script before Redis 7.2.

local call, pack, unpack = redis.call, struct.pack, struct.unpack
local now, grace = ARGV[1], 1
if now == '' then
	local t = call('TIME')
	now = t[1] * 1000000 + t[2]
else
	-- The clock of a test may stand still while keys expire by the server's.
	now, grace = tonumber(now), 3600000
end

-- ttl is the time to live of what stops mattering at t, in milliseconds.
local function ttl(t)
	local ms = math.ceil((t - now) / 1000)
	return (ms > 0 and ms or 0) + grace
end
