module github.com/weirlimit/weir

go 1.25.0
