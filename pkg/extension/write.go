package extension

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"portico.dev/internal/respond"
)

// writeRequest is a write request that is being served.
type writeRequest struct {
	*resourceHandler
	info    *apirequest.RequestInfo
	options writeOptions
	rep     representation
	include metav1.IncludeObjectPolicy
}

// begin parses the common parts of all write requests.
func (s *resourceHandler) begin(r *http.Request, info *apirequest.RequestInfo) (*writeRequest, error) {
	o := offer{verb: info.Verb, protobuf: s.protobuf}
	if info.Verb == "deletecollection" {
		o.verb = "list" // the response is a list
	}
	rep, ok := o.negotiate(r.Header.Get("Accept"))
	if !ok {
		return nil, respond.NotAcceptable(o.acceptable()...)
	}
	include, err := includePolicy(r)
	if err != nil {
		return nil, err
	}
	options, err := parseWriteOptions(r)
	if err != nil {
		return nil, err
	}
	wr := &writeRequest{resourceHandler: s, info: info, options: options, rep: rep, include: include}
	return wr, wr.checkDryRun()
}

func (wr *writeRequest) checkDryRun() error {
	if wr.options.dryRun && !wr.dryRun {
		return apierrors.NewBadRequest("this resource cannot do a dry run, so nothing was done")
	}
	return nil
}

// query returns the Query for the provider.
func (wr *writeRequest) query(ctx context.Context, name string) Query {
	q := everything()
	q.Namespace, q.Name, q.User = wr.info.Namespace, name, caller(ctx)
	q.DryRun, q.FieldManager = wr.options.dryRun, wr.options.fieldManager
	return q
}

// current returns the current object, with the provider's resourceVersion.
func (wr *writeRequest) current(ctx context.Context, name string) (entry, error) {
	k := key{wr.info.Namespace, name}
	if !wr.keeps() {
		q := everything()
		q.Namespace, q.Name, q.User = k.namespace, k.name, wr.shown(ctx)
		o, err := wr.source.get(ctx, q)
		if err != nil {
			return entry{}, err
		}
		return entry{object: o, theirs: o.GetResourceVersion()}, nil
	}
	v := wr.views.viewFor(caller(ctx))
	if _, err := v.refresh(ctx, time.Now()); err != nil {
		return entry{}, err
	}
	if h, ok := v.lookup(k); ok {
		return h, nil
	}
	return entry{}, apierrors.NewNotFound(wr.gvr.GroupResource(), name)
}

// settled returns the object for the response of a write: the object in the view, with its resourceVersion. If the source
// does not return the written object yet, or another client has written since, it is the object that the provider returned,
// with an older version. A client that continues from there gets a conflict and overwrites nothing.
func (wr *writeRequest) settled(ctx context.Context, made object, before uint64) object {
	if !wr.keeps() {
		return made
	}
	if !wr.watchable() {
		_, _ = wr.views.viewFor(caller(ctx)).refresh(ctx, time.Now()) // if the source fails, the next read reports it
		return made
	}
	made.SetResourceVersion("")
	after := wr.source.stamped(made, formatVersion(before))
	if wr.options.dryRun {
		return after
	}
	v := wr.views.viewFor(caller(ctx))
	if _, err := v.refresh(ctx, time.Now()); err != nil {
		return after
	}
	shown, ok := v.lookup(key{made.GetNamespace(), made.GetName()})
	if !ok {
		return after
	}
	written, err := digest([]object{made}, true)
	if err != nil || written[key{made.GetNamespace(), made.GetName()}].digest != shown.digest {
		return after
	}
	return shown.object
}

// checkPreconditions compares the client's uid and resourceVersion with the object's.
func (wr *writeRequest) checkPreconditions(now object, uid *string, version *string) error {
	conflict := func(what, want, have string) error {
		return apierrors.NewConflict(wr.gvr.GroupResource(), wr.info.Name,
			fmt.Errorf("%s is %q and not %q; read it again and repeat the change", what, have, want))
	}
	if uid != nil && *uid != "" && now.GetUID() != "" && string(now.GetUID()) != *uid {
		return conflict("uid", *uid, string(now.GetUID()))
	}
	if have := now.GetResourceVersion(); version != nil && *version != "" && have != "" && *version != have {
		return conflict("resourceVersion", *version, have)
	}
	return nil
}

// writeOptions are the query parameters of a write.
type writeOptions struct {
	dryRun       bool
	fieldManager string
	validation   string // metav1.FieldValidationStrict, Warn or Ignore
}

// maxFieldManager is kube-apiserver's limit for the length of a field manager's name.
const maxFieldManager = 128

func parseWriteOptions(r *http.Request) (writeOptions, error) {
	query := r.URL.Query()
	o := writeOptions{fieldManager: query.Get("fieldManager"), validation: query.Get("fieldValidation")}
	problems := dryRunProblems(query["dryRun"])
	o.dryRun = len(query["dryRun"]) > 0
	if len(o.fieldManager) > maxFieldManager || strings.ContainsFunc(o.fieldManager, func(c rune) bool { return !unicode.IsPrint(c) }) {
		problems = append(problems, field.Invalid(field.NewPath("fieldManager"), o.fieldManager,
			fmt.Sprintf("must be at most %d printable characters", maxFieldManager)))
	}
	known := []string{metav1.FieldValidationIgnore, metav1.FieldValidationStrict, metav1.FieldValidationWarn}
	switch {
	case o.validation == "":
		o.validation = metav1.FieldValidationWarn
	case !slices.Contains(known, o.validation):
		problems = append(problems, field.NotSupported(field.NewPath("fieldValidation"), o.validation, known))
	}
	return o, invalidOptions(problems)
}

func dryRunProblems(values []string) (problems field.ErrorList) {
	if len(values) > 0 && !slices.Equal(slices.Compact(slices.Clone(values)), []string{metav1.DryRunAll}) {
		problems = append(problems, field.NotSupported(field.NewPath("dryRun"), values, []string{metav1.DryRunAll}))
	}
	return problems
}

func invalidOptions(problems field.ErrorList) error {
	if len(problems) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "Options"}, "", problems)
}

// readBody reads the request body, which the chain has limited.
func readBody(r *http.Request) ([]byte, error) {
	data, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", tooLarge.Limit))
	case err != nil:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("read the body: %v", err))
	}
	return data, nil
}

// contentType returns the media type of the body, which must be in accepted. The default is JSON if accepted begins with it.
func contentType(r *http.Request, accepted ...string) (string, error) {
	said := r.Header.Get("Content-Type")
	if said == "" && accepted[0] == respond.MediaJSON {
		return respond.MediaJSON, nil
	}
	media, _, err := mime.ParseMediaType(said)
	if err == nil && slices.Contains(accepted, media) {
		return media, nil
	}
	return "", &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("a body of type %q cannot be read here; accepted are: %s", said, strings.Join(accepted, ", ")),
	}}
}

// toJSON converts a YAML body to JSON and returns a JSON body unchanged. twice reports a duplicate key.
func toJSON(data []byte, media string) (out []byte, twice error, err error) {
	if media != respond.MediaYAML {
		return data, nil, nil
	}
	if out, err = yaml.YAMLToJSON(data); err != nil {
		return nil, nil, err
	}
	_, twice = yaml.YAMLToJSONStrict(data)
	return out, twice, nil
}
