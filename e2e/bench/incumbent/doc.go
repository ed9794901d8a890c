// Package incumbent puts the front door beside a real kube-apiserver: the same requests to the same backend, the same objects,
// as many registrations, and the same dying backends.
//
// Both sides are given the same certificate, tokens, roles and audit policy, and are otherwise left as they come. Where one
// side is several processes it is said of each what it uses. What can be repeated is repeated by turns, and ratios are taken
// in each round; faults and registrations are single runs.
//
// Up to sixteen API servers run at once, most of them idle: that takes 6 GiB of memory, and 110 of a user's inotify instances,
// of which many machines give out 128 (fs.inotify.max_user_instances).
package incumbent
