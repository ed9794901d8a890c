package core

import (
	"errors"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// registerOptions registers the conversions from URL queries to the options of subresources. kube-apiserver generates them in a
// package that other modules cannot import.
func registerOptions(scheme *runtime.Scheme) error {
	return errors.Join(
		readsQuery(scheme, func(q query, o *corev1.PodLogOptions) {
			read(q, "container", runtime.Convert_Slice_string_To_string, &o.Container)
			read(q, "follow", runtime.Convert_Slice_string_To_bool, &o.Follow)
			read(q, "previous", runtime.Convert_Slice_string_To_bool, &o.Previous)
			read(q, "sinceSeconds", runtime.Convert_Slice_string_To_Pointer_int64, &o.SinceSeconds)
			read(q, "sinceTime", metav1.Convert_Slice_string_To_Pointer_v1_Time, &o.SinceTime)
			read(q, "timestamps", runtime.Convert_Slice_string_To_bool, &o.Timestamps)
			read(q, "tailLines", runtime.Convert_Slice_string_To_Pointer_int64, &o.TailLines)
			read(q, "limitBytes", runtime.Convert_Slice_string_To_Pointer_int64, &o.LimitBytes)
			read(q, "insecureSkipTLSVerifyBackend", runtime.Convert_Slice_string_To_bool, &o.InsecureSkipTLSVerifyBackend)
			read(q, "stream", toPointer, &o.Stream)
		}),
		readsQuery(scheme, func(q query, o *corev1.PodExecOptions) {
			readStreams(q, &o.Stdin, &o.Stdout, &o.Stderr, &o.TTY, &o.Container)
			o.Command = q.values["command"]
		}),
		readsQuery(scheme, func(q query, o *corev1.PodAttachOptions) {
			readStreams(q, &o.Stdin, &o.Stdout, &o.Stderr, &o.TTY, &o.Container)
		}),
		readsQuery(scheme, func(q query, o *corev1.PodPortForwardOptions) {
			read(q, "ports", metav1.Convert_Slice_string_To_Slice_int32, &o.Ports)
		}),
		readsQuery(scheme, func(q query, o *corev1.PodProxyOptions) {
			read(q, "path", runtime.Convert_Slice_string_To_string, &o.Path)
		}),
		readsQuery(scheme, func(q query, o *corev1.NodeProxyOptions) {
			read(q, "path", runtime.Convert_Slice_string_To_string, &o.Path)
		}),
		readsQuery(scheme, func(q query, o *corev1.ServiceProxyOptions) {
			read(q, "path", runtime.Convert_Slice_string_To_string, &o.Path)
		}),
	)
}

// query contains the values of a URL query during conversion, and the first error.
type query struct {
	values url.Values
	scope  conversion.Scope
	err    *error
}

func readsQuery[T any](scheme *runtime.Scheme, fill func(q query, o *T)) error {
	return scheme.AddConversionFunc((*url.Values)(nil), (*T)(nil), func(from, to any, scope conversion.Scope) error {
		var err error
		fill(query{*from.(*url.Values), scope, &err}, to.(*T))
		return err
	})
}

func read[T any](q query, name string, convert func(in *[]string, out *T, s conversion.Scope) error, to *T) {
	values, ok := q.values[name]
	if !ok || len(values) == 0 || *q.err != nil {
		return
	}
	*q.err = convert(&values, to, q.scope)
}

func readStreams(q query, stdin, stdout, stderr, tty *bool, container *string) {
	for name, to := range map[string]*bool{"stdin": stdin, "stdout": stdout, "stderr": stderr, "tty": tty} {
		read(q, name, runtime.Convert_Slice_string_To_bool, to)
	}
	read(q, "container", runtime.Convert_Slice_string_To_string, container)
}

func toPointer(in *[]string, out **string, _ conversion.Scope) error {
	if len(*in) > 0 {
		*out = &(*in)[0]
	}
	return nil
}
