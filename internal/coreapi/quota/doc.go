// Package quota counts the usage of a namespace and refuses requests that exceed its ResourceQuotas.
//
// Admission adds the usage of a write to the status of the quota before the write, by compare and swap in etcd, so that all
// replicas together stay within the limit. The status is never less than the stored usage. It may be more, because a write that
// fails later has been charged: Measure counts the stored objects, and its caller lowers the status.
//
// Only resources that are served here are counted. Requests to extension servers do not pass this admission, so this package
// neither calls them nor waits for them.
package quota
