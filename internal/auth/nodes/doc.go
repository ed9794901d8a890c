// Package nodes authorises the requests of nodes, as the Node authorizer of kube-apiserver does: a node may read the pods that run
// on it, and what these pods refer to, and nothing of other nodes.
//
//	node <- pod
//	node <- pod <- Secret, ConfigMap, PersistentVolumeClaim, ResourceClaim, ServiceAccount
//	node <- pod <- PersistentVolumeClaim <- PersistentVolume
//	node <- pod <- PersistentVolumeClaim <- PersistentVolume <- Secret
//	node <- VolumeAttachment, ResourceSlice, PodCertificateRequest
//
// For resources that are not in this list, nodes have the rules of the ClusterRole system:node.
//
// # What is trusted
//
// The group system:nodes and the user name system:node:NAME, which come from a certificate or from whoever may impersonate nodes. And
// pods: who may create a pod that runs on a node lets that node read what the pod refers to. A mirror pod is written by its node, so
// it refers to nothing here, whatever it says (attack row C24).
//
// # What is promised to callers
//
// What is refused is no opinion, so that a later authorizer can allow it. What the admission plugin NodeRestriction must
// check, because it is in the body of a request, is allowed here: the two belong together.
package nodes
