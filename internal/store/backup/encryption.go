package backup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"

	"portico.dev/internal/pki"
)

// Recipients returns the recipients of an encrypted backup: public keys of age, files with such keys, or a passphrase, which is
// the first line of a file.
func Recipients(keys, files []string, passphraseFile string) ([]age.Recipient, error) {
	if passphraseFile != "" {
		if len(keys)+len(files) > 0 {
			return nil, errors.New("--passphrase-file: a backup is encrypted with a passphrase or for recipients, not with both")
		}
		passphrase, err := readPassphrase(passphraseFile)
		if err != nil {
			return nil, err
		}
		recipient, err := age.NewScryptRecipient(passphrase)
		if err != nil {
			return nil, fmt.Errorf("--passphrase-file: %w", err)
		}
		return []age.Recipient{recipient}, nil
	}
	var all []age.Recipient
	for _, key := range keys {
		found, err := age.ParseRecipients(strings.NewReader(key))
		if err != nil {
			return nil, fmt.Errorf("--recipient: %w; it is what age-keygen calls the public key", err)
		}
		all = append(all, found...)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("--recipients-file: %w", err)
		}
		found, err := age.ParseRecipients(f)
		_ = f.Close() // the file was only read
		if err != nil {
			return nil, fmt.Errorf("--recipients-file %s: %w", file, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// Identities returns the identities that decrypt a backup.
func Identities(identityFiles []string, passphraseFile string) ([]age.Identity, error) {
	var all []age.Identity
	if passphraseFile != "" {
		passphrase, err := readPassphrase(passphraseFile)
		if err != nil {
			return nil, err
		}
		identity, err := age.NewScryptIdentity(passphrase)
		if err != nil {
			return nil, fmt.Errorf("--passphrase-file: %w", err)
		}
		all = append(all, identity)
	}
	for _, file := range identityFiles {
		if err := pki.CheckPrivate(file); err != nil {
			return nil, fmt.Errorf("--identity-file: %w", err)
		}
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("--identity-file: %w", err)
		}
		found, err := age.ParseIdentities(f)
		_ = f.Close() // the file was only read
		if err != nil {
			return nil, fmt.Errorf("--identity-file %s: %w", file, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// maxPassphrase bounds the size of a passphrase file.
const maxPassphrase = 4 << 10

// readPassphrase returns the first line of a file. The file must not be readable by other users.
func readPassphrase(file string) (string, error) {
	if err := pki.CheckPrivate(file); err != nil {
		return "", fmt.Errorf("--passphrase-file: %w", err)
	}
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("--passphrase-file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPassphrase+1))
	if err != nil {
		return "", fmt.Errorf("--passphrase-file: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	line = strings.TrimSuffix(line, "\r")
	switch {
	case line == "":
		return "", fmt.Errorf("--passphrase-file: the first line of %s is empty", file)
	case len(line) > maxPassphrase:
		return "", fmt.Errorf("--passphrase-file: the first line of %s has more than %d bytes", file, maxPassphrase)
	}
	return line, nil
}
