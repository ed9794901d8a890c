// Package quota counts what a namespace uses and refuses requests beyond its ResourceQuotas.
//
// Admission adds what a write will use to the status of the quota before the write, by compare and swap in etcd, so that all
// replicas together stay within the limit. The status is never less than what is stored. It may be more, because a write
// that fails later has been charged for: Measure counts what is stored, and its caller lowers the status.
//
// Only resources that are served here are counted. Requests to extension servers do not pass this admission, so that
// nothing here calls them or waits for them.
package quota
