-- reset: forgets a state.
--
-- KEYS[1]  the state
-- ARGV[1]  the time, see each.lua
-- ARGV[2]  the row: mode, Max, Burst, Window, Part, cost
-- returns  what one.lua would for a peek before

local key, mode, max, burst, window, part, cost = KEYS[1], unpack('>BI4I4I6I6I6', ARGV[2])
local span, done = window, 0
@look
@tell
call('DEL', key)
return told
