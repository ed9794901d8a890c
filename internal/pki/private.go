package pki

import (
	"fmt"
	"os"
)

// CheckPrivate refuses a private key file that every user of the machine can read: whoever has the key is us.
func CheckPrivate(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o004 != 0 {
		return fmt.Errorf("%s can be read by every user of this machine; run chmod 600 %s", file, file)
	}
	return nil
}
