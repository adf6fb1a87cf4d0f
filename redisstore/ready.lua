-- ready: tells which commands of scripts the user has no right to.
--
-- KEYS[1]  a key that nobody else uses
-- ARGV     the names of the commands
-- returns  those of them that are refused

local key, refused = KEYS[1], {}
local arguments = {
	TIME = {},
	GET = {key}, SET = {key, '', 'PX', 1000}, DEL = {key}, PEXPIRE = {key, 1000},
	APPEND = {key, ''}, STRLEN = {key}, GETRANGE = {key, 0, 0}, SETRANGE = {key, 0, ''},
	HGETALL = {key}, HSET = {key, '', ''}, HDEL = {key, ''}, PTTL = {key},
	ZADD = {key, 'XX', 0, ''}, ZCARD = {key}, ZRANGE = {key, 0, 0}, ZREVRANGE = {key, 0, 0},
	ZRANGEBYSCORE = {key, 0, 0}, ZREVRANGEBYSCORE = {key, 0, 0},
	ZREMRANGEBYRANK = {key, 0, 0}, ZREMRANGEBYSCORE = {key, 0, 0},
}
for _, name in ipairs(ARGV) do
	local reply = redis.pcall(name, unpack(arguments[name]))
	local failed = type(reply) == 'table' and reply.err or ''
	if string.find(failed, "can't run this command") or string.find(failed, 'no permissions to run') then -- from Redis 7.2 on
		refused[#refused + 1] = name
	end
end
redis.pcall('PEXPIRE', key, 1000)
redis.pcall('DEL', key)
return refused
