package programs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

var exportLine = regexp.MustCompile(`export KUBECONFIG=(\S+)`)

// StartDev starts `aggregator dev` from a directory of built programs, on a free port, and waits until it has said how to
// reach it. It works in dir, which is its home too; kubeconfig is an administrator's. log gets what it logs; it may be nil.
// Whoever gets a process finishes it, also when there is an error.
func StartDev(built, dir string, log io.Writer, args ...string) (p *Process, kubeconfig string, err error) {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	p, err = Start("aggregator dev", dir, env, log, filepath.Join(built, "aggregator"), append([]string{"dev", "--secure-port", "0"}, args...)...)
	if err != nil {
		return nil, "", err
	}
	err = Poll(p.Exited(), func() error {
		match := exportLine.FindStringSubmatch(p.Output())
		if match == nil {
			return errors.New("it does not say how to reach it")
		}
		kubeconfig = match[1]
		return nil
	})
	if !filepath.IsAbs(kubeconfig) {
		kubeconfig = filepath.Join(dir, kubeconfig)
	}
	return p, kubeconfig, err
}
