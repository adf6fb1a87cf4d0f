module github.com/weirlimit/weir/redisstore

go 1.25.0

require (
	github.com/redis/rueidis v1.0.79
	github.com/weirlimit/weir v0.0.0
)

require golang.org/x/sys v0.47.0 // indirect

replace github.com/weirlimit/weir => ../
