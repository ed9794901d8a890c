package pki

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPrivateKeysThatAnybodyCanRead(t *testing.T) {
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o640: true, 0o400: true, 0o644: false, 0o604: false} {
		t.Run(mode.String(), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tls.key")
			if err := os.WriteFile(file, nil, mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, mode); err != nil { // whatever the umask says
				t.Fatal(err)
			}
			err := CheckPrivate(file)
			if (err == nil) != ok {
				t.Fatalf("%v", err)
			}
			if err != nil && !strings.Contains(err.Error(), "chmod 600 "+file) {
				t.Fatalf("%v does not say what to do", err)
			}
		})
	}
}
