// Package nodes authorizes requests of nodes like kube-apiserver's Node authorizer. A node may read the pods that run
// on it and the objects to which these pods refer, but nothing that belongs to other nodes.
//
//	node <- pod
//	node <- pod <- Secret, ConfigMap, PersistentVolumeClaim, ResourceClaim, ServiceAccount
//	node <- pod <- PersistentVolumeClaim <- PersistentVolume
//	node <- pod <- PersistentVolumeClaim <- PersistentVolume <- Secret
//	node <- VolumeAttachment, ResourceSlice, PodCertificateRequest
//
// For resources that are not in this list, the rules of the ClusterRole system:node apply.
//
// # Trust
//
// The package trusts the group system:nodes and the user name system:node:NAME, which come from a certificate or from
// a client that may impersonate nodes. It also trusts pods: a user who may create a pod on a node lets that node read
// the objects to which the pod refers. A mirror pod is written by its node, so its references are ignored (attack row
// C24).
//
// # Guarantees
//
// A refusal is "no opinion", so that a later authorizer can allow the request. Requests that depend on their body are
// allowed here, because the admission plugin NodeRestriction checks them. Both must be enabled together.
package nodes
