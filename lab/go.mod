module github.com/weirlimit/weir/lab

go 1.25.0

require (
	github.com/weirlimit/weir v0.0.0
	pgregory.net/rapid v1.3.0
)

replace github.com/weirlimit/weir => ../
