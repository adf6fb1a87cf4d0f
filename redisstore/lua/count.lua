-- count: tells how many units were taken in a span before now.
--
-- KEYS[1]  the state
-- ARGV[1]  the time, see each.lua
-- ARGV[2]  the row: mode, Max, Burst, Window, Part, the span in microseconds
-- returns  the units

local key, mode, max, burst, window, part, span = KEYS[1], unpack('>BI4I4I6I6I6', ARGV[2])
local cost = 1
@look
return live
