-- one: decides a single row. It is list.lua without its loops and closures,
-- which would take as long again.
--
-- KEYS[1]  the state
-- ARGV[1]  the time, see each.lua
-- ARGV[2]  the row: mode, Max, Burst, Window, Part, cost
-- returns  the time (7 bytes), whether it was charged (1), what the algorithm tells

local key, mode, max, burst, window, part, cost = KEYS[1], unpack('>BI4I4I6I6I6', ARGV[2])
local span = window
@look
if mode == 2 or not fits and mode ~= 3 then -- Peek, Record
	local done = 0
	@tell
	return told
end
local done = 1
@charge
@tell
return told
