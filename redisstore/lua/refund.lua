-- refund: gives back units that a receipt proves, or the oldest ones.
--
-- KEYS[1]  the state
-- ARGV[1]  the time, see each.lua
-- ARGV[2]  the row: 0 for a receipt or 1 for the oldest, Max, Burst, Window,
--          Part, and cost: how many units to give back
-- ARGV[3]  the receipt: Stamp, Level, Place, Back, Birth
-- returns  how many units were given back

local key, oldest, max, burst, window, part, cost = KEYS[1], unpack('>BI4I4I6I6I6', ARGV[2])
local stamp, level, place, backed, born = unpack('>I7I7I7I7I7', ARGV[3])
local span, given = window, 0
oldest = oldest == 1
@look
@refund
return given
