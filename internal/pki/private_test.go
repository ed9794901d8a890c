package pki

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWorldAccessiblePrivateKeyIsRejected(t *testing.T) {
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o640: true, 0o400: true, 0o644: false, 0o604: false, 0o602: false, 0o622: false} {
		t.Run(mode.String(), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tls.key")
			if err := os.WriteFile(file, nil, mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, mode); err != nil { // regardless of the umask
				t.Fatal(err)
			}
			err := CheckPrivate(file)
			if (err == nil) != ok {
				t.Fatalf("CheckPrivate with the mode %v = %v, want no error = %t", mode, err, ok)
			}
			if err != nil && !strings.Contains(err.Error(), "chmod 600 "+file) {
				t.Fatalf("CheckPrivate error = %v, want an error that contains chmod 600 %s", err, file)
			}
		})
	}
}

func TestWorldAccessibleDataDirectoryIsRejected(t *testing.T) {
	for situation, c := range map[string]struct {
		path  string // the path whose mode is changed; "" is the directory
		mode  os.FileMode
		wants string // part of the error; empty: none
	}{
		"as it is made":                          {"", 0o700, ""},
		"the group may read":                     {"", 0o750, ""},
		"the group may write":                    {"", 0o770 | os.ModeSetgid, ""},
		"everybody may list":                     {"", 0o755, "DIR can be read by every user of this machine; run chmod 0700 DIR"},
		"everybody may pass":                     {"", 0o711, "run chmod 0700 DIR"},
		"everybody may write":                    {"", 0o777, "DIR can be read and changed by every user of this machine; run chmod 0700 DIR"},
		"everybody may write and not list":       {"", 0o733, "DIR can be changed by"},
		"a shared directory such as /tmp":        {"", 0o777 | os.ModeSticky, "run chmod 0700 DIR"},
		"keys that everybody may list":           {"pki", 0o755, "DIR/pki can be read by every user of this machine; run chmod 0700 DIR/pki"},
		"a key that everybody may read":          {"pki/ca.key", 0o644, "DIR/pki/ca.key can be read by every user of this machine; run chmod 600 DIR/pki/ca.key"},
		"a key that its group may read":          {"pki/ca.key", 0o660, ""},
		"a key that everybody may change":        {"pki/ca.key", 0o602, "run chmod 600 DIR/pki/ca.key"},
		"a certificate that everybody may read":  {"pki/ca.crt", 0o644, ""},
		"an authority that everybody may change": {"pki/ca.crt", 0o646, "run chmod o-w DIR/pki/ca.crt"},
		"an etcd that everybody may read":        {"etcd", 0o705, "run chmod 0700 DIR/etcd"},
		"an administrator's kubeconfig":          {"admin.kubeconfig", 0o604, "run chmod 600 DIR/admin.kubeconfig"},
	} {
		t.Run(situation, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			private := []string{"pki", "etcd", "admin.kubeconfig", "nothing-of-the-kind"}
			if err := PrepareDataDir(dir, private...); err != nil {
				t.Fatal(err)
			}
			for _, sub := range []string{"pki", "etcd"} {
				if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, file := range []string{"pki/ca.key", "pki/ca.crt", "admin.kubeconfig"} {
				if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(filepath.Join(dir, c.path), c.mode); err != nil {
				t.Fatal(err)
			}
			err := PrepareDataDir(dir, private...)
			if want := strings.ReplaceAll(c.wants, "DIR", dir); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("PrepareDataDir error = %v, want %q", err, want)
			}
			if info, err := os.Stat(dir); c.path == "" && (err != nil || info.Mode()&^os.ModeDir != c.mode) {
				t.Errorf("mode of the directory = %v, %v, want %v unchanged", info.Mode(), err, c.mode)
			}
		})
	}
}

func TestEmptyDataDirectoryIsMadePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(dir, "lost+found"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := PrepareDataDir(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the directory = %v, %v, want 0700", info.Mode(), err)
	}
}

func TestDataDirectoryOfAnotherUserIsOneError(t *testing.T) {
	dir := t.TempDir()
	own := os.Geteuid()
	other := own + 12345
	for _, c := range []struct {
		situation string
		mode      os.FileMode
		user      int
		refused   bool
	}{
		{"own directory", 0o700, own, false},
		{"another user", 0o700, other, true},
		{"another user, and everybody may list", 0o755, other, true},
		{"another user of a group with all rights", 0o770, other, false},
		{"root", 0o700, 0, false},
	} {
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		err = checkOwner(dir, info, c.user)
		if (err != nil) != c.refused {
			t.Errorf("%s: error = %v, want refused = %v", c.situation, err, c.refused)
		}
		want := fmt.Sprintf("run chown -R %d %s, or choose another directory with --data-dir", other, dir)
		if err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%s: error = %v, want one line with %q", c.situation, err, want)
		}
	}
}
