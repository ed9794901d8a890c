// Package backup writes, verifies and restores backups of a front door: a snapshot of its etcd and, if requested, its keys.
//
// A backup is a zip archive. It can be encrypted as a whole with age (age-encryption.org/v1).
//
//	etcd.db                 a snapshot in the format of etcdctl and etcdutl
//	keys/pki/NAME           the files of the data directory's pki
//	keys/flags/FLAG/NAME    files with keys that are named by flags
//	manifest.json           Manifest; the last entry, so that a truncated archive lacks it
//
// It is written in one pass, to any writer, because the disk of the front door may be the problem. A backup without keys is as
// confidential as one with keys: it contains every Secret of the API, unless they are encrypted at rest.
//
// All content of a backup is verified before it is used: the lengths and SHA-256 sums in the manifest, etcd's checksum, and
// names, which must not leave the directory that they are restored to. age detects changes to an encrypted backup. The content
// of an unencrypted backup is only as trustworthy as everyone with write access to it.
package backup
