-- nested: decides two to four Enforce rows of different states all-or-nothing.
-- It is list.lua without its closures, which would take longer than all else:
-- each row's scope holds those of the rows behind it, so its variables are
-- still there when all have looked.
--
-- KEYS[i]    the state of row i
-- ARGV[1]    the time, see each.lua
-- ARGV[1+i]  row i: mode, Max, Burst, Window, Part, cost
-- returns    the rows' replies, as one.lua has them

local admitted, replies = true, {}
@rows
local key, mode, max, burst, window, part, cost = KEYS[@i], unpack('>BI4I4I6I6I6', ARGV[@i + 1])
local span, done = window, 0
@look
if not fits then admitted = false end
do
@behind
end
if admitted then
@charge
done = 1
end
@tell
replies[@i] = told
@end
return table.concat(replies)
