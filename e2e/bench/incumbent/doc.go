// Package incumbent compares the front door with kube-apiserver: the same requests to the same backend, the same
// objects, the same number of registrations, and the same dying backends.
//
// Both sides use the same certificate, tokens, roles and audit policy, and otherwise their defaults. If a side
// consists of several processes, the results of each are reported. Repeatable measurements alternate between the
// sides, and ratios are computed in each round. Faults and registrations are measured once.
//
// Up to sixteen API servers run at once, most of them idle. They need 6 GiB of memory and 110 inotify instances of
// the user. Many machines permit 128 (fs.inotify.max_user_instances).
package incumbent
