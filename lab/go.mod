module github.com/weirlimit/weir/lab

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/redis/rueidis v1.0.79
	github.com/weirlimit/weir v0.0.0
	github.com/weirlimit/weir/redisstore v0.0.0
	pgregory.net/rapid v1.3.0
)

require golang.org/x/sys v0.47.0 // indirect

replace (
	github.com/weirlimit/weir => ../
	github.com/weirlimit/weir/redisstore => ../redisstore
)
