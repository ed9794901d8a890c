package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// countDescendants counts the processes started below pid until stop is called. It polls a hundred times a second, so that it can
// miss a process that lives for less than 10 ms. On systems without /proc it finds none. Unless found is nil, it is called with the
// number of processes whenever that has grown.
func countDescendants(pid int, found func(count int)) (stop func() int) {
	ending, counted := make(chan struct{}), make(chan int)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		known := map[int]bool{pid: true}
		for {
			before := len(known)
			addChildren(known)
			if found != nil && len(known) > before {
				found(len(known) - 1)
			}
			select {
			case <-tick.C:
			case <-ending:
				counted <- len(known) - 1
				return
			}
		}
	}()
	return func() int {
		close(ending)
		return <-counted
	}
}

// addChildren adds the processes with known parents. A process stays known after its parent exits.
func addChildren(known map[int]bool) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for range stats { // children of children
		before := len(known)
		for _, file := range stats {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil || known[pid] {
				continue
			}
			if parent, ok := parentOf(file); ok && known[parent] {
				known[pid] = true
			}
		}
		if len(known) == before {
			return
		}
	}
}

// parentOf reads the fourth field of /proc/PID/stat. The second is a name in parentheses, which may contain any bytes.
func parentOf(file string) (int, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false // the process has exited
	}
	fields := strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}
