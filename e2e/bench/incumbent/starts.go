package incumbent

import (
	"debug/elf"
	"fmt"
	"os"
	"strings"

	"portico.dev/e2e/measure"
)

// Start contains the times in milliseconds from the start of a process to its first successful /readyz, with an empty
// etcd. The etcd of kube-apiserver is already running; the embedded etcd of Portico starts with it.
type Start struct {
	Ours     measure.Spread `json:"oursMS"`
	Theirs   measure.Spread `json:"theirsMS"`
	ToTheirs measure.Spread `json:"oursToTheirs"`
	HowOften int            `json:"starts"`
}

func starts(g *rig) Start {
	same := func(f float64) float64 { return f }
	return Start{
		Ours: measure.SpreadOf(g.started.ours), Theirs: measure.SpreadOf(g.started.theirs),
		ToTheirs: measure.Ratio(g.started.ours, g.started.theirs, same), HowOften: len(g.started.ours),
	}
}

// Program contains the size of a program file, and its size without symbols and debug information, which depend on
// the build.
type Program struct {
	Name  string `json:"program"`
	File  int64  `json:"fileBytes"`
	Plain int64  `json:"withoutSymbolsBytes"`
}

func programSizes(g *rig) ([]Program, error) {
	ours, err := g.y.Aggregator()
	if err != nil {
		return nil, err
	}
	etcd, err := g.y.EtcdProgram()
	if err != nil {
		return nil, err
	}
	var all []Program
	for _, p := range []struct{ name, file string }{
		{"aggregator", ours}, {"kube-apiserver", g.theirs.APIServer}, {"kube-controller-manager", g.theirs.ControllerManager}, {"etcd", etcd},
	} {
		one, err := sizeOf(p.file)
		if err != nil {
			return nil, fmt.Errorf("size of %s: %w", p.name, err)
		}
		one.Name = p.name
		all = append(all, one)
	}
	return all, nil
}

func sizeOf(file string) (Program, error) {
	info, err := os.Stat(file)
	if err != nil {
		return Program{}, err
	}
	p := Program{File: info.Size(), Plain: info.Size()}
	f, err := elf.Open(file)
	if err != nil {
		return Program{}, err
	}
	for _, s := range f.Sections {
		if s.Name == ".symtab" || s.Name == ".strtab" || strings.HasPrefix(s.Name, ".debug_") || strings.HasPrefix(s.Name, ".zdebug_") {
			p.Plain -= int64(s.FileSize)
		}
	}
	return p, f.Close()
}
