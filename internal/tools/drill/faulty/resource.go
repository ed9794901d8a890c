package faulty

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const metadataVersion = "meta.k8s.io/v1"

// resource serves <plural>, <plural>/<name>[/connect] and namespaces/<namespace>/<plural>[/<name>[/connect]].
func (s *Server) resource(w http.ResponseWriter, r *http.Request, parts []string) {
	var key types.NamespacedName
	if parts[0] == "namespaces" && len(parts) > 2 {
		key.Namespace, parts = parts[1], parts[2:]
	}
	if parts[0] != s.kind().plural || len(parts) > 3 || len(parts) == 3 && parts[2] != connect {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
		return
	}
	if len(parts) > 1 {
		key.Name = parts[1]
	}
	switch {
	case len(parts) == 3:
		s.connect(w, r)
	case !s.cfg.Stores:
		s.reading(w, r, key)
	case key.Name == "":
		s.collection(w, r, key.Namespace)
	default:
		s.item(w, r, key)
	}
}

// reading returns a synthetic response, like a server without storage.
func (s *Server) reading(w http.ResponseWriter, r *http.Request, key types.NamespacedName) {
	switch {
	case r.Method != http.MethodGet:
		notAllowed(w)
	case key.Name == "":
		s.answerList(w, r, nil, 1)
	default:
		s.answerObject(w, r, http.StatusOK, object{ObjectMeta: metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace}})
	}
}

func (s *Server) collection(w http.ResponseWriter, r *http.Request, namespace string) {
	switch r.Method {
	case http.MethodGet:
		if q := r.URL.Query().Get("watch"); q == "true" || q == "1" {
			s.watch(w, r, namespace)
			return
		}
		found, revision := s.store.list(namespace)
		s.answerList(w, r, found, revision)
	case http.MethodPost:
		var o object
		if !readBody(w, r, &o) {
			return
		}
		o.Namespace = namespace
		created, err := s.store.create(o)
		s.answerResult(w, r, http.StatusCreated, o.Name, created, err)
	case http.MethodDelete:
		found, revision := s.store.list(namespace)
		for _, o := range found {
			_, _ = s.store.remove(keyOf(o), o.UID) // an object that is already gone counts as deleted
		}
		s.answerList(w, r, found, revision)
	default:
		notAllowed(w)
	}
}

func (s *Server) item(w http.ResponseWriter, r *http.Request, key types.NamespacedName) {
	var o object
	var err error
	switch r.Method {
	case http.MethodGet:
		o, err = s.store.get(key)
	case http.MethodPut:
		var wanted object
		if !readBody(w, r, &wanted) {
			return
		}
		o, err = s.store.update(key, func(object) (object, error) { return wanted, nil })
	case http.MethodPatch:
		o, err = s.patch(r, key)
	case http.MethodDelete:
		var options metav1.DeleteOptions
		if r.ContentLength > 0 && !readBody(w, r, &options) {
			return
		}
		var uid types.UID
		if p := options.Preconditions; p != nil && p.UID != nil {
			uid = *p.UID
		}
		o, err = s.store.remove(key, uid)
	default:
		notAllowed(w)
		return
	}
	s.answerResult(w, r, http.StatusOK, key.Name, o, err)
}

// patch treats every patch type as a merge patch, which is correct for the metadata patches of our clients and of
// garbage collectors.
func (s *Server) patch(r *http.Request, key types.NamespacedName) (object, error) {
	patch, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return object{}, err
	}
	return s.store.update(key, func(before object) (object, error) {
		old, err := json.Marshal(before)
		if err != nil {
			return object{}, err
		}
		merged, err := mergePatch(old, patch)
		if err != nil {
			return object{}, err
		}
		var after object
		return after, json.Unmarshal(merged, &after)
	})
}

func mergePatch(old, patch []byte) ([]byte, error) {
	var o, p map[string]any
	if err := errors.Join(json.Unmarshal(old, &o), json.Unmarshal(patch, &p)); err != nil {
		return nil, err
	}
	return json.Marshal(merge(o, p))
}

// merge implements RFC 7386.
func merge(into, from map[string]any) map[string]any {
	for name, value := range from {
		inner, isMap := value.(map[string]any)
		switch {
		case value == nil:
			delete(into, name)
		case isMap:
			target, ok := into[name].(map[string]any)
			if !ok {
				target = map[string]any{}
			}
			into[name] = merge(target, inner)
		default:
			into[name] = value
		}
	}
	return into
}

func readBody(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "read the body as JSON: "+err.Error())
		return false
	}
	return true
}

// answerResult answers failures like kube-apiserver, with details. The garbage collector accepts a NotFound only if
// its details match the requested object.
func (s *Server) answerResult(w http.ResponseWriter, r *http.Request, code int, name string, o object, err error) {
	resource := schema.GroupResource{Group: s.cfg.Group, Resource: s.kind().plural}
	var refused *apierrors.StatusError
	switch {
	case err == nil:
		s.answerObject(w, r, code, o)
		return
	case errors.Is(err, errNotFound):
		refused = apierrors.NewNotFound(resource, name)
	case errors.Is(err, errExists):
		refused = apierrors.NewAlreadyExists(resource, name)
	case errors.Is(err, errConflict):
		refused = apierrors.NewConflict(resource, name, err)
	case errors.Is(err, errFull):
		refuse(w, http.StatusInsufficientStorage, "StorageFull", err.Error())
		return
	default:
		refused = apierrors.NewBadRequest(err.Error())
	}
	status := refused.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	answer(w, int(status.Code), status)
}

// typed sets the kind of an object: PartialObjectMetadata for the informers of garbage collectors and namespace
// controllers.
func (s *Server) typed(r *http.Request, o object) object {
	o.TypeMeta = metav1.TypeMeta{Kind: s.kind().name, APIVersion: s.cfg.Group + "/v1"}
	if wantsMetadata(r) {
		o.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: metadataVersion}
	}
	return o
}

func wantsMetadata(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

func (s *Server) answerObject(w http.ResponseWriter, r *http.Request, code int, o object) {
	answer(w, code, s.typed(r, o))
}

func (s *Server) answerList(w http.ResponseWriter, r *http.Request, found []object, revision int64) {
	list := struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []object `json:"items"`
	}{
		TypeMeta: metav1.TypeMeta{Kind: s.kind().name + "List", APIVersion: s.cfg.Group + "/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(revision, 10)},
		Items:    make([]object, 0, len(found)),
	}
	if wantsMetadata(r) {
		list.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: metadataVersion}
	}
	for _, o := range found {
		list.Items = append(list.Items, s.typed(r, o))
	}
	answer(w, http.StatusOK, list)
}

func notAllowed(w http.ResponseWriter) {
	refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the server does not allow this method on the requested resource")
}
