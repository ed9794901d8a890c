package extension

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"portico.dev/internal/respond"
)

const (
	generatedLength = 5 // random characters after generateName
	maxNameLength   = 253
	maxNameAttempts = 8 // attempts to find a free name, as in kube-apiserver
)

// create serves a create request.
func (s *resourceHandler) create(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) error {
	wr, err := s.begin(r, info)
	if err != nil {
		return err
	}
	o, err := wr.readObject(r)
	if err != nil {
		return err
	}
	if err := wr.prepareNew(o); err != nil {
		return err
	}
	before := s.issued.last.Load()
	made, err := wr.createNamed(r.Context(), o)
	if err != nil {
		return err
	}
	return s.answer(w, r, http.StatusCreated, wr.rep, wr.include, wr.settled(r.Context(), made, before))
}

// createNamed creates the object. If the client set only generateName, createNamed generates the name, and retries with
// another one if it exists.
func (wr *writeRequest) createNamed(ctx context.Context, o object) (object, error) {
	generate := o.GetName() == "" && o.GetGenerateName() != ""
	for attempt := 1; ; attempt++ {
		if generate {
			prefix := o.GetGenerateName()
			o.SetName(prefix[:min(len(prefix), maxNameLength-generatedLength)] + rand.String(generatedLength))
		}
		made, err := wr.createOnce(ctx, o)
		if err == nil || !generate || !apierrors.IsAlreadyExists(err) || attempt == maxNameAttempts {
			return made, err
		}
	}
}

func (wr *writeRequest) createOnce(ctx context.Context, o object) (object, error) {
	done, err := wr.writes.Lock(ctx, key{wr.info.Namespace, o.GetName()})
	if err != nil {
		return nil, err
	}
	defer done()
	return wr.source.create(ctx, wr.query(ctx, o.GetName()), wr.source.stamped(o, ""))
}

// readObject reads the body of a create or an update request.
func (wr *writeRequest) readObject(r *http.Request) (object, error) {
	accepted := []string{respond.MediaJSON, respond.MediaYAML}
	if wr.protobuf {
		accepted = append(accepted, respond.MediaProtobuf)
	}
	media, err := contentType(r, accepted...)
	if err != nil {
		return nil, err
	}
	data, err := readBody(r)
	if err != nil {
		return nil, err
	}
	data, twice, err := toJSON(data, media)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is not YAML: %v", err))
	}
	return wr.decodeObject(r.Context(), data, media, twice)
}

// decodeObject decodes data. Unknown and duplicate fields are handled according to the request's fieldValidation.
func (wr *writeRequest) decodeObject(ctx context.Context, data []byte, media string, twice error) (object, error) {
	o, odd, err := wr.source.decode(data, media)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is not a %s: %v", wr.kind.Kind, err))
	}
	if twice != nil {
		odd = append(odd, twice)
	}
	switch {
	case len(odd) == 0:
	case wr.options.validation == metav1.FieldValidationStrict:
		texts := make([]string, len(odd))
		for i := range odd {
			texts[i] = odd[i].Error()
		}
		return nil, apierrors.NewBadRequest("strict decoding error: " + strings.Join(texts, ", "))
	case wr.options.validation == metav1.FieldValidationWarn:
		for _, field := range odd {
			Warn(ctx, field.Error())
		}
	}
	said := o.GetObjectKind().GroupVersionKind()
	if said.Kind != "" && said.Kind != wr.kind.Kind || said.Version != "" && said.GroupVersion() != wr.kind.GroupVersion() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is a %s of %s, and this is the place of %s of %s",
			said.Kind, said.GroupVersion(), wr.kind.Kind, wr.kind.GroupVersion()))
	}
	o.GetObjectKind().SetGroupVersionKind(wr.kind)
	return o, wr.place(o)
}

// place checks the namespace of the object, or sets it to the namespace of the request.
func (wr *writeRequest) place(o object) error {
	switch ns := o.GetNamespace(); {
	case ns == "":
		o.SetNamespace(wr.info.Namespace)
	case !wr.namespaced:
		return apierrors.NewBadRequest(fmt.Sprintf("metadata.namespace is %q, and %s has no namespaces", ns, wr.gvr.GroupResource()))
	case ns != wr.info.Namespace:
		return apierrors.NewBadRequest(fmt.Sprintf("metadata.namespace is %q, and the request is about namespace %q", ns, wr.info.Namespace))
	}
	return nil
}

// prepareNew validates a new object and clears the fields that the server sets.
func (wr *writeRequest) prepareNew(o object) error {
	if o.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("metadata.resourceVersion must not be set on an object to be created")
	}
	o.SetUID("")
	o.SetCreationTimestamp(metav1.Time{})
	o.SetDeletionTimestamp(nil)
	o.SetDeletionGracePeriodSeconds(nil)
	o.SetGeneration(0)
	o.SetManagedFields(nil)
	return wr.checkName(o)
}

func (wr *writeRequest) checkName(o object) error {
	at := field.NewPath("metadata", "name")
	name, given := o.GetName(), o.GetName()
	if name == "" {
		name = o.GetGenerateName()
	}
	if name == "" {
		if wr.nameless {
			return nil
		}
		return wr.invalid(o, field.Required(at, "name or generateName is required"))
	}
	if problems := content.IsPathSegmentName(name); len(problems) > 0 {
		return wr.invalid(o, field.Invalid(at, name, strings.Join(problems, ", ")))
	}
	if len(given) > maxNameLength {
		return wr.invalid(o, field.TooLong(at, "", maxNameLength))
	}
	return nil
}

func (wr *writeRequest) invalid(o object, problem *field.Error) error {
	return apierrors.NewInvalid(wr.kind.GroupKind(), o.GetName(), field.ErrorList{problem})
}
