module example.com/httpserver

go 1.26.0

replace (
	github.com/weirlimit/weir => ../../
	github.com/weirlimit/weir/redisstore => ../../redisstore
)

require (
	github.com/weirlimit/weir v0.0.0
	github.com/weirlimit/weir/redisstore v0.0.0-00010101000000-000000000000
)

require (
	github.com/redis/rueidis v1.0.79 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
