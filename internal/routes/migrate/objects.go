package migrate

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"portico.dev/internal/routes/v1alpha1"
)

// maxProblems limits the reported problems, and partSize is the page size of lists.
const (
	maxProblems = 20
	partSize    = 500
)

// at returns a client for the objects of a namespace at one backend.
func (m *Migration) at(backend, namespace string) dynamic.ResourceInterface {
	c := m.backends[backend].Resource(m.config.Resource)
	if namespace == "" {
		return c
	}
	return c.Namespace(namespace)
}

// list returns the objects at one backend, by name.
func (m *Migration) list(ctx context.Context, backend, namespace string) (map[string]*unstructured.Unstructured, error) {
	out := map[string]*unstructured.Unstructured{}
	options := metav1.ListOptions{Limit: partSize}
	for {
		list, err := m.at(backend, namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list the %s at backend %s: %w", m.config.Resource.Resource, backend, err)
		}
		for i := range list.Items {
			out[list.Items[i].GetName()] = &list.Items[i]
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return out, nil
		}
	}
}

// add adds a problem, unless maxProblems is reached.
func (r *Report) add(format string, args ...any) {
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	} else if len(r.Problems) == maxProblems {
		r.Problems = append(r.Problems, "and more")
	}
}

// look checks whether a namespace can move.
func (m *Migration) look(ctx context.Context, r *Report) error {
	m.config.Progress(r.Namespace, "looking whether it can move")
	objects, err := m.list(ctx, r.From, r.Namespace)
	if err != nil {
		return err
	}
	r.Objects = len(objects)
	there, err := m.list(ctx, r.To, r.Namespace)
	if err != nil {
		return err
	}
	uids := map[types.UID]string{}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		o := objects[name]
		uids[o.GetUID()] = name
		if o.GetDeletionTimestamp() != nil {
			r.add("%s is being deleted: wait until it is gone", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if !isLeftover(there[name]) {
			r.add("backend %s has a %s %s that is no copy of what backend %s has: delete it", r.To, m.resource.Kind, name, r.From)
		}
	}
	if err := m.findDependents(ctx, r, uids); err != nil {
		return err
	}
	others, err := m.otherVersions(ctx)
	if err != nil {
		return err
	}
	for _, gv := range others {
		r.add("%s has %s too, and requests for it go past the APIRoute: delete its APIService, once no client asks for it", gv, m.config.Resource.Resource)
	}
	if len(r.Problems) > 0 {
		return ErrRefused
	}
	return nil
}

// findDependents finds objects of other kinds that are owned by moved objects. The garbage collector would delete them.
func (m *Migration) findDependents(ctx context.Context, r *Report, uids map[types.UID]string) error {
	if len(uids) == 0 {
		return nil
	}
	all, err := m.client.Discover(ctx)
	if err != nil {
		return fmt.Errorf("discover all resources: %w", err)
	}
	for _, gv := range all {
		if gv.Err != nil {
			return fmt.Errorf("objects of %s may be owned by what moves, and cannot be looked at: %w", gv, gv.Err)
		}
	}
	looked := map[schema.GroupResource]bool{m.config.Resource.GroupResource(): true}
	for _, gv := range all {
		for _, resource := range gv.Resources {
			gr := schema.GroupResource{Group: gv.Group, Resource: resource.Name}
			if looked[gr] || strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "list") || !slices.Contains(resource.Verbs, "delete") ||
				!resource.Namespaced && r.Namespace != "" {
				continue
			}
			looked[gr] = true // in the preferred version
			if err := m.findDependentsAmong(ctx, r, uids, gv.WithResource(resource.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Migration) findDependentsAmong(ctx context.Context, r *Report, uids map[types.UID]string, resource schema.GroupVersionResource) error {
	options := metav1.ListOptions{Limit: partSize}
	for {
		list, err := m.metadata.Resource(resource).Namespace(r.Namespace).List(ctx, options)
		if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look for %s that are owned by what moves: %w", resource.GroupResource(), err)
		}
		for _, o := range list.Items {
			for _, owner := range o.OwnerReferences {
				if name, ok := uids[owner.UID]; ok {
					r.add("%s %s is owned by %s %s, which gets another uid, and would be garbage: delete the owner reference", resource.GroupResource(), o.Name, m.resource.Kind, name)
				}
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// isLeftover reports whether an invisible object was left by a migration.
func isLeftover(o *unstructured.Unstructured) bool {
	return o.GetAnnotations()[FromUID] != "" || o.GetAnnotations()[MovedTo] != ""
}

// pair is an object and its copy.
type pair struct {
	source, copied *unstructured.Unstructured
}

// copyAll creates the copies, and deletes older copies of objects that no longer exist.
func (m *Migration) copyAll(ctx context.Context, r *Report) (map[string]pair, error) {
	objects, err := m.list(ctx, r.From, r.Namespace)
	if err != nil {
		return nil, err
	}
	there, err := m.list(ctx, r.To, r.Namespace)
	if err != nil {
		return nil, err
	}
	r.Objects = len(objects)
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if objects[name] != nil {
			continue
		}
		if err := m.remove(ctx, r.To, there[name]); err != nil {
			return nil, fmt.Errorf("delete an older copy of %s: %w", name, err)
		}
		r.Removed++
	}
	pairs, uids := map[string]pair{}, map[types.UID]types.UID{}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		copied, changed, err := m.copyOne(ctx, r, objects[name], there[name])
		if err != nil {
			return nil, fmt.Errorf("copy %s to backend %s: %w", name, r.To, err)
		}
		if changed {
			r.Copied++
		}
		pairs[name], uids[objects[name].GetUID()] = pair{objects[name], copied}, copied.GetUID()
	}
	return pairs, m.changeOwners(ctx, r, pairs, uids)
}

// template returns the object that is written as the copy of o.
func template(o *unstructured.Unstructured) *unstructured.Unstructured {
	made := o.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		unstructured.RemoveNestedField(made.Object, "metadata", field)
	}
	annotations := made.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, MovedTo)
	annotations[FromUID] = string(o.GetUID())
	made.SetAnnotations(annotations)
	return made
}

// copyOne creates or updates a copy. It keeps an identical copy.
func (m *Migration) copyOne(ctx context.Context, r *Report, o, there *unstructured.Unstructured) (copied *unstructured.Unstructured, changed bool, err error) {
	if there != nil && there.GetAnnotations()[FromUID] == string(o.GetUID()) && m.difference(o, there, nil) == "" {
		return there, false, nil
	}
	made := template(o)
	if there == nil {
		copied, err = m.at(r.To, r.Namespace).Create(ctx, made, metav1.CreateOptions{FieldManager: "aggregator-migrate"})
	} else {
		made.SetResourceVersion(there.GetResourceVersion())
		made.SetUID(there.GetUID())
		copied, err = m.at(r.To, r.Namespace).Update(ctx, made, metav1.UpdateOptions{FieldManager: "aggregator-migrate"})
	}
	if err != nil {
		return nil, false, err
	}
	status, has := o.Object["status"]
	if !m.status || !has || reflect.DeepEqual(status, copied.Object["status"]) {
		return copied, true, nil
	}
	copied.Object["status"] = status
	copied, err = m.at(r.To, r.Namespace).UpdateStatus(ctx, copied, metav1.UpdateOptions{FieldManager: "aggregator-migrate"})
	if apierrors.IsNotFound(err) { // the target does not have the subresource, so the status was written with the object
		copied, err = m.at(r.To, r.Namespace).Get(ctx, o.GetName(), metav1.GetOptions{})
	}
	return copied, true, err
}

// changeOwners replaces the uids of moved owners in the copies of their dependents.
func (m *Migration) changeOwners(ctx context.Context, r *Report, pairs map[string]pair, uids map[types.UID]types.UID) error {
	for name, p := range pairs {
		owners, change := p.copied.GetOwnerReferences(), false
		for i := range owners {
			if uid, moved := uids[owners[i].UID]; moved {
				owners[i].UID, change = uid, true
			}
		}
		if !change {
			continue
		}
		p.copied.SetOwnerReferences(owners)
		copied, err := m.at(r.To, r.Namespace).Update(ctx, p.copied, metav1.UpdateOptions{FieldManager: "aggregator-migrate"})
		if err != nil {
			return fmt.Errorf("change the owners of the copy of %s: %w", name, err)
		}
		pairs[name] = pair{p.source, copied}
	}
	return nil
}

// compare reads both backends again, and returns an error if they differ.
func (m *Migration) compare(ctx context.Context, r *Report, copied map[string]pair) error {
	objects, err := m.list(ctx, r.From, r.Namespace)
	if err != nil {
		return err
	}
	there, err := m.list(ctx, r.To, r.Namespace)
	if err != nil {
		return err
	}
	uids := map[string]string{}
	for _, p := range copied {
		uids[string(p.copied.GetUID())] = string(p.source.GetUID())
	}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		p, known := copied[name]
		switch {
		case !known || p.source.GetResourceVersion() != objects[name].GetResourceVersion():
			r.add("%s was changed while it was copied: try again", name)
		case there[name] == nil:
			r.add("the copy of %s is gone", name)
		default:
			if where := m.difference(objects[name], there[name], uids); where != "" {
				r.add("the copy of %s differs: %s; if that may be so, ignore the field", name, where)
			}
		}
	}
	for name := range there {
		if objects[name] == nil {
			r.add("backend %s has a %s that backend %s has not", r.To, name, r.From)
		}
	}
	if len(r.Problems) > 0 {
		return ErrRefused
	}
	return nil
}

// difference returns a description of the first difference between an object and its copy, or "".
func (m *Migration) difference(o, copied *unstructured.Unstructured, uids map[string]string) string {
	a, b := m.comparable(o, nil), m.comparable(copied, uids)
	return differ("", a, b)
}

// comparable returns an object without server-set and ignored fields, with the original uids of owners.
func (m *Migration) comparable(o *unstructured.Unstructured, uids map[string]string) map[string]any {
	made := o.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "selfLink", "managedFields"} {
		unstructured.RemoveNestedField(made.Object, "metadata", field)
	}
	annotations := made.GetAnnotations()
	delete(annotations, FromUID)
	delete(annotations, MovedTo)
	made.SetAnnotations(annotations)
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(made.Object, "metadata", "annotations")
	}
	owners := made.GetOwnerReferences()
	for i := range owners {
		if before, moved := uids[string(owners[i].UID)]; moved {
			owners[i].UID = types.UID(before)
		}
	}
	if len(owners) > 0 {
		made.SetOwnerReferences(owners)
	}
	for _, path := range m.config.Ignore {
		unstructured.RemoveNestedField(made.Object, strings.Split(path, ".")...)
	}
	return made.Object
}

// differ returns a description of the first difference, or "". Empty and missing values are equal.
func differ(path string, a, b any) string {
	am, aIs := a.(map[string]any)
	bm, bIs := b.(map[string]any)
	if (aIs || a == nil) && (bIs || b == nil) {
		names := slices.Sorted(maps.Keys(am))
		for name := range bm {
			if _, has := am[name]; !has {
				names = append(names, name)
			}
		}
		for _, name := range names {
			if where := differ(strings.TrimPrefix(path+"."+name, "."), am[name], bm[name]); where != "" {
				return where
			}
		}
		return ""
	}
	if reflect.DeepEqual(a, b) || isEmpty(a) && isEmpty(b) {
		return ""
	}
	return fmt.Sprintf("%s is %s, and was %s", path, show(b), show(a))
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func show(v any) string {
	if v == nil {
		return "not set"
	}
	return fmt.Sprintf("%.100s", fmt.Sprint(v))
}

// findLate finds writes after the comparison, through a replica that did not use the read-only rule yet.
func (m *Migration) findLate(ctx context.Context, r *Report, copied map[string]pair) error {
	objects, err := m.list(ctx, r.From, r.Namespace)
	if err != nil {
		return fmt.Errorf("the objects at backend %s could not be looked at once more: %w", r.From, err)
	}
	for name, o := range objects {
		if p, known := copied[name]; !known || p.source.GetResourceVersion() != o.GetResourceVersion() {
			r.add("%s was written at backend %s after it was copied: compare it with what backend %s has", name, r.From, r.To)
		}
	}
	for name := range copied {
		if objects[name] == nil {
			r.add("%s was deleted at backend %s after it was copied: look whether backend %s should have it", name, r.From, r.To)
		}
	}
	return nil
}

// markSource annotates the copied objects with their new backend, so that a move back may replace them.
func (m *Migration) markSource(ctx context.Context, r *Report, copied map[string]pair) error {
	for _, name := range slices.Sorted(maps.Keys(copied)) {
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, copied[name].source.GetUID(), MovedTo, r.To)
		if _, err := m.at(r.From, r.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "aggregator-migrate"}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("annotate %s at backend %s: %w", name, r.From, err)
		}
	}
	return nil
}

// deleteSource deletes the copied objects at the source backend.
func (m *Migration) deleteSource(ctx context.Context, r *Report, copied map[string]pair) error {
	for _, name := range slices.Sorted(maps.Keys(copied)) {
		if err := m.remove(ctx, r.From, copied[name].source); err != nil {
			return fmt.Errorf("delete %s at backend %s: %w", name, r.From, err)
		}
		r.Deleted++
	}
	return nil
}

// deleteCopies deletes the remaining objects of a moved namespace at other backends.
func (m *Migration) deleteCopies(ctx context.Context, r *Report, route *v1alpha1.APIRoute) error {
	here, err := m.list(ctx, r.To, r.Namespace)
	if err != nil {
		return err
	}
	for _, b := range route.Spec.Backends {
		if b.Name == r.To {
			continue
		}
		objects, err := m.list(ctx, b.Name, r.Namespace)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			o := objects[name]
			if copied := here[name]; o.GetAnnotations()[MovedTo] == "" && (copied == nil || copied.GetAnnotations()[FromUID] != string(o.GetUID()) && o.GetAnnotations()[FromUID] != string(copied.GetUID())) {
				r.add("%s at backend %s has no copy at backend %s, and is left: if it was deleted since, delete it", name, b.Name, r.To)
				continue
			}
			if m.config.DryRun {
				r.Deleted++
				continue
			}
			if err := m.remove(ctx, b.Name, o); err != nil {
				return fmt.Errorf("delete %s at backend %s: %w", name, b.Name, err)
			}
			r.Deleted++
		}
	}
	return nil
}

// remove deletes an object that is no longer visible to clients. It first removes its finalizers, which belong to the copy.
func (m *Migration) remove(ctx context.Context, backend string, o *unstructured.Unstructured) error {
	at := m.at(backend, o.GetNamespace())
	if len(o.GetFinalizers()) > 0 {
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":null}}`, o.GetUID())
		if _, err := at.Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "aggregator-migrate"}); err != nil {
			return err
		}
	}
	background, uid := metav1.DeletePropagationBackground, o.GetUID()
	err := at.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
