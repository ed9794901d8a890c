// Package durability is what becomes of what was acknowledged, when processes are killed and etcd has a bad day.
//
// Each test runs the real program, has clients write, read and watch while something goes wrong, and gives what they saw to
// the package history, together with every change that etcd holds. Nothing that was acknowledged may be missing, nothing
// that was refused may be there, and no watch may have missed, repeated or invented an event.
package durability
