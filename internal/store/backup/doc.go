// Package backup writes, verifies and restores backups of a front door: a snapshot of its etcd and, if requested, its keys.
//
// A backup is a zip archive, encrypted as a whole with age (age-encryption.org/v1) if asked for:
//
//	etcd.db                 a snapshot, as etcdctl saves it: etcdutl can restore it too
//	keys/pki/NAME           the files of the data directory's pki
//	keys/flags/FLAG/NAME    files with keys that flags name
//	manifest.json           Manifest; the last entry, so that an archive that was cut off has none
//
// It is written in one pass, to any writer, because the disk of the front door may be the problem. A backup without keys is as
// secret as one with them: it has every Secret of the API, unless they are encrypted at rest.
//
// Whatever is read from a backup is verified before it is used: lengths and SHA-256 sums of the manifest, etcd's own sum, and
// names that must not leave the directory that they are restored to. age notices what was changed in an encrypted one; who can
// write an unencrypted one can make it say anything.
package backup
