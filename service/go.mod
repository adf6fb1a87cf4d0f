module github.com/weirlimit/weir/service

go 1.25.0

require (
	github.com/fsnotify/fsnotify v1.10.1
	github.com/goccy/go-yaml v1.19.2
	github.com/rogpeppe/go-internal v1.16.0
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9
	github.com/weirlimit/weir v0.0.0
	github.com/weirlimit/weir/redisstore v0.0.0
)

require (
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/tools v0.26.0 // indirect
)

replace (
	github.com/weirlimit/weir => ../
	github.com/weirlimit/weir/redisstore => ../redisstore
)
