package storetest_test

import (
	"fmt"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/storetest"
)

// memory opens the store that the examples are about.
func memory(now func() time.Time) (weir.Store, error) {
	return weir.NewMemory(weir.MemoryOptions{Now: now}), nil
}

// In the tests of a store all it takes is storetest.Run(t, open).
func ExampleOpen() {
	var open storetest.Open = func(now func() time.Time) (weir.Store, error) {
		return weir.NewMemory(weir.MemoryOptions{Now: now}), nil
	}
	store, err := open(time.Now)
	fmt.Println(store.Close(), err)
	// Output: <nil> <nil>
}

// One promise of the contract can be checked by itself.
func ExampleCheck() {
	for _, check := range storetest.Checks() {
		if check.Name == "tiny-windows" {
			fmt.Println(check.Promise)
			fmt.Println(check.Run(memory))
		}
	}
	// Output:
	// windows below a millisecond hold and expire to the microsecond
	// <nil>
}

const three = `
case a burst of three, then one every 500 ms
limit token-bucket 2/1s burst=3
at 0ms    take 3  ok    remaining=0 reset=1.5s
at 499ms  take 1  deny  retry=1ms
at 500ms  take 1  ok    remaining=0
`

// A script is played on a fresh store.
func ExampleScript() {
	scripts, err := storetest.ParseScripts("three.txt", three)
	if err != nil {
		fmt.Println(err)
	}
	for _, s := range scripts {
		fmt.Println(s.Name+":", s.Play(memory))
	}
	// Output: a burst of three, then one every 500 ms: <nil>
}

func ExampleStep() {
	scripts, _ := storetest.ParseScripts("three.txt", three)
	for _, step := range scripts[0].Steps {
		fmt.Println(step.Line, step)
	}
	// Output:
	// 3 limit key 2/1s burst=3
	// 4 at 0s take 3 key
	// 5 at 499ms take 1 key
	// 6 at 500ms take 1 key
}

func ExampleRow() {
	scripts, _ := storetest.ParseScripts("rows.txt", "case a list\nlimit a 5/s\nlimit b 5/s\nat 0s all a*2 b*3:shadow ok\n")
	for _, row := range scripts[0].Steps[2].Rows {
		fmt.Println(row.Name, row.Cost, row.Mode)
	}
	// Output:
	// a 2 enforce
	// b 3 shadow
}

func ExampleWant() {
	scripts, _ := storetest.ParseScripts("three.txt", three)
	want := scripts[0].Steps[2].Want
	fmt.Println(want.Verdict, want.Fields["retry"])
	// Output: deny 1ms
}
