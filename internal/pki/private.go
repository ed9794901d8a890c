package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	readByOthers  = 0o004
	writeByOthers = 0o002
)

// CheckPrivate refuses a private key file that every user of the machine can read or change, because a holder of the
// key can impersonate this server. Group access is allowed, because Kubernetes provides files to pods that way.
func CheckPrivate(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if can := describeAccess(info, readByOthers|writeByOthers); can != "" {
		return fmt.Errorf("%s can be %s by every user of this machine; run chmod 600 %s", file, can, file)
	}
	return nil
}

// describeAccess describes the access, within the given bits, of users who are neither the owner nor in the group. It returns
// "" for no access.
func describeAccess(info fs.FileInfo, bits fs.FileMode) string {
	if !hasModes {
		return ""
	}
	switch has := info.Mode().Perm() & bits; {
	case has == 0:
		return ""
	case has&writeByOthers == 0:
		return "read"
	case has&readByOthers == 0:
		return "changed"
	}
	return "read and changed"
}

// PrepareDataDir creates dir with mode 0700, or refuses a directory that every user of the machine can list or
// change. An empty directory owned by this user is given that mode, because it contains nothing that others could
// have read. private are directories and files in dir that are refused in the same way if they exist. In a directory
// of keys, files other than *.key may be readable but not writable by every user.
//
// Group access is allowed. Kubernetes mounts a volume with fsGroup as a directory owned by root with the setgid bit
// and one of this process's groups. Its mode cannot be changed, and the volume has no other users.
func PrepareDataDir(dir string, private ...string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("data directory %s cannot be used: %w; choose another with --data-dir", dir, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := checkOwner(dir, info, os.Geteuid()); err != nil {
		return err
	}
	if can := describeAccess(info, 0o007); can != "" && !volumeOfOurs(info) {
		if !emptyAndOurs(dir, info) {
			return fmt.Errorf("data directory %s can be %s by every user of this machine; run chmod 0700 %s", dir, can, dir)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
	}
	var errs []error
	for _, name := range private {
		errs = append(errs, checkInside(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

// checkOwner refuses a directory of another user to which its group has no full access. Otherwise every file in it would be
// reported, without the cause.
func checkOwner(dir string, info fs.FileInfo, runsAs int) error {
	const groupAccess = 0o070
	has, _, ok := owner(info)
	if !ok || runsAs == 0 || runsAs == has || info.Mode()&groupAccess == groupAccess {
		return nil
	}
	return fmt.Errorf("data directory %s belongs to user %s, and this process runs as user %s; run it as %[2]s, run chown -R %[3]s %[1]s, or choose another directory with --data-dir",
		dir, userName(has), userName(runsAs))
}

// userName returns the name of a user, or the ID of a user without one.
func userName(id int) string {
	known, err := user.LookupId(strconv.Itoa(id))
	if err != nil {
		return strconv.Itoa(id)
	}
	return known.Username
}

func checkInside(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("data directory: %w", err)
	case !info.IsDir():
		return CheckPrivate(path)
	}
	if can := describeAccess(info, 0o007); can != "" {
		return fmt.Errorf("%s can be %s by every user of this machine; run chmod 0700 %s", path, can, path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		info, err := os.Stat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed in the meantime, or a dangling link
		case err != nil:
			return fmt.Errorf("data directory: %w", err)
		case info.IsDir():
		case strings.HasSuffix(file, ".key"):
			if err := CheckPrivate(file); err != nil {
				return err
			}
		case describeAccess(info, writeByOthers) != "":
			return fmt.Errorf("%s can be changed by every user of this machine; run chmod o-w %s", file, file)
		}
	}
	return nil
}

// volumeOfOurs reports whether root prepared a directory for our group, as kubelets do.
func volumeOfOurs(info fs.FileInfo) bool {
	user, group, ok := owner(info)
	if !ok || user != 0 || os.Geteuid() == 0 || info.Mode()&fs.ModeSetgid == 0 {
		return false
	}
	groups, err := os.Getgroups()
	return err == nil && slices.Contains(append(groups, os.Getegid()), group)
}

func emptyAndOurs(dir string, info fs.FileInfo) bool {
	user, _, ok := owner(info)
	if !ok || user != os.Geteuid() {
		return false
	}
	entries, err := os.ReadDir(dir)
	// A new file system contains lost+found.
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != "lost+found" })
}
