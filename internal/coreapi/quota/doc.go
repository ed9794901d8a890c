// Package quota counts what a namespace uses and refuses what would be too much.
//
// A ResourceQuota says how much of what a namespace may have; its status says how much that is now. Admission adds what a
// write will use to the status before the write, by compare and swap in etcd, so that all replicas together let in no more
// than fits. What the status says is always at least what there is, and may be more: a write that fails later has been
// charged for. Measure counts anew what there is, and whoever runs it lowers the status.
//
// What is counted is what is served here. What extension servers serve does not pass this admission, so that nothing here
// asks them or waits for them.
package quota
