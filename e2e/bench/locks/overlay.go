package locks

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A change is a change of a file of the standard library.
type change struct {
	file string // below GOROOT/src
	// at matches the text after which code is inserted, in all places. If it is nil, the end of the file is meant.
	at   *regexp.Regexp
	code string
}

var changes = []change{
	{"internal/sync/mutex.go", regexp.MustCompile(`(?m)^func \(m \*Mutex\) (Lock|TryLock)\(\).* \{`), ` counted(uintptr(unsafe.Pointer(m)));`},
	{"internal/sync/mutex.go", nil, declaration},
	{"sync/atomic/type.go", regexp.MustCompile(`(?m)^func \(x \*[\w\[\]]+\) (Store|Swap|CompareAndSwap|Add|And|Or)\(.* \{`), ` counted(uintptr(unsafe.Pointer(x)));`},
	{"sync/atomic/type.go", nil, declaration},
	{"runtime/mprof.go", nil, recorder},
}

const declaration = `
//go:linkname counted
func counted(address uintptr)
`

// recorder records writes in the profile of mutexes, which is empty otherwise. The address takes the place of the time, so that
// each address has an entry for each stack. It records while a CPU profile is made.
const recorder = `
//go:linkname countedLock internal/sync.counted
func countedLock(address uintptr) { counted(address, uintptr(getfp())) }

//go:linkname countedAtomic sync/atomic.counted
func countedAtomic(address uintptr) { counted(address, uintptr(getfp())) }

func counted(address, fp uintptr) {
	gp := getg()
	if !cpuprof.on || gp == gp.m.g0 || gp.m.curg != gp {
		return
	}
	mp := acquirem()
	n := fpTracebackPartialExpand(0, unsafe.Pointer(fp), mp.profStack)
	bp := stkbucket(mutexProfile, uintptr(address), mp.profStack[:n], true).bp()
	lock(&profBlockLock)
	bp.count++
	bp.cycles = int64(address)
	unlock(&profBlockLock)
	releasem(mp)
}
`

// build builds the front door with the changes, in a directory. All of its dependencies are compiled anew.
func build(ctx context.Context, dir string) (program string, err error) {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the standard library: %w", err)
	}
	changed := map[string]string{} // new file by original
	for i, c := range changes {
		original := filepath.Join(strings.TrimSpace(string(goroot)), "src", c.file)
		source := original
		if changed[original] != "" {
			source = changed[original]
		}
		text, err := os.ReadFile(source)
		if err != nil {
			return "", err
		}
		with := append(text, c.code...)
		if c.at != nil {
			if !c.at.Match(text) {
				return "", fmt.Errorf("%s of this Go release has no %s, so that its writes cannot be counted", c.file, c.at)
			}
			with = c.at.ReplaceAll(text, []byte("${0}"+c.code))
		}
		changed[original] = filepath.Join(dir, strconv.Itoa(i)+".go")
		if err := os.WriteFile(changed[original], with, 0o600); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": changed})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "aggregator")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-overlay", list, "-o", program, "portico.dev/cmd/aggregator")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the front door with a changed standard library: %w\n%s", err, out)
	}
	return program, nil
}
