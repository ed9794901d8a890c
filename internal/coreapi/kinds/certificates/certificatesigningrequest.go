package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/registry"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

// A signer issues an identity based on the requester in a request. So the requester comes from the authentication of the HTTP
// request, never from the object. Neither the requester nor the requested certificate can change later.

// stampRequester records the user who requests a certificate.
func stampRequester(ctx context.Context, obj runtime.Object) {
	request := obj.(*certificatesv1.CertificateSigningRequest)
	spec := &request.Spec
	spec.Username, spec.UID, spec.Groups, spec.Extra = "", "", nil, nil
	if user, known := apirequest.UserFrom(ctx); known {
		spec.Username, spec.UID, spec.Groups = user.GetName(), user.GetUID(), user.GetGroups()
		for key, values := range user.GetExtra() {
			if spec.Extra == nil {
				spec.Extra = map[string]certificatesv1.ExtraValue{}
			}
			spec.Extra[key] = values
		}
	}
	request.Status = certificatesv1.CertificateSigningRequestStatus{}
}

// certificateSigningRequestStorages returns the subresources for approving a request and for storing its certificate. There are
// two, so that approving and signing can be permitted to different parties.
func certificateSigningRequestStorages(_ *registry.Environment, main *registry.REST) map[string]rest.Storage {
	status := registry.StatusStrategy{Strategy: main.Strategy}
	return map[string]rest.Storage{
		"certificatesigningrequests/approval": main.Subresource(certificateApproval{status}),
		"certificatesigningrequests/status":   main.Subresource(certificateStatus{status}),
	}
}

// certificateApproval changes only the conditions.
type certificateApproval struct{ registry.StatusStrategy }

func (s certificateApproval) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	request, before := obj.(*certificatesv1.CertificateSigningRequest), old.(*certificatesv1.CertificateSigningRequest)
	request.Spec = before.Spec
	request.Status.Certificate = before.Status.Certificate
	dateConditions(request, before)
}

func (s certificateApproval) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return CertificateApproval(obj.(*certificatesv1.CertificateSigningRequest), old.(*certificatesv1.CertificateSigningRequest))
}

func (s certificateApproval) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.Resets(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status", "certificate"))
}

// certificateStatus changes the certificate, and can add the condition that signing has failed.
type certificateStatus struct{ registry.StatusStrategy }

func (s certificateStatus) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	request, before := obj.(*certificatesv1.CertificateSigningRequest), old.(*certificatesv1.CertificateSigningRequest)
	request.Spec = before.Spec
	// A signer with a stale copy of the request may send slightly changed approval conditions. Validation refuses added or
	// removed ones.
	keepConditions(request, before, certificatesv1.CertificateApproved)
	keepConditions(request, before, certificatesv1.CertificateDenied)
	dateConditions(request, before)
}

func (s certificateStatus) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.Resets(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status", "conditions"))
}

// keepConditions restores the conditions of one type if their number is unchanged.
func keepConditions(request, before *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) {
	places := func(r *certificatesv1.CertificateSigningRequest) []*certificatesv1.CertificateSigningRequestCondition {
		var found []*certificatesv1.CertificateSigningRequestCondition
		for i := range r.Status.Conditions {
			if r.Status.Conditions[i].Type == kind {
				found = append(found, &r.Status.Conditions[i])
			}
		}
		return found
	}
	to, from := places(request), places(before)
	if len(to) != len(from) {
		return
	}
	for i := range to {
		*to[i] = *from[i]
	}
}

// dateConditions sets the missing update and transition times of conditions.
func dateConditions(request, before *certificatesv1.CertificateSigningRequest) {
	now := metav1.Now()
	for i := range request.Status.Conditions {
		c := &request.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, old := range before.Status.Conditions {
			if old.Type == c.Type && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
				c.LastTransitionTime = old.LastTransitionTime
				break
			}
		}
	}
}

func certificateSigningRequestResource() registry.Resource {
	return registry.Resource{
		Name: "certificatesigningrequests", Singular: "certificatesigningrequest", ShortNames: []string{"csr"}, ClusterScoped: true,
		Object: &certificatesv1.CertificateSigningRequest{}, List: &certificatesv1.CertificateSigningRequestList{}, AllowUnconditionalUpdate: true,
		Samples: []string{
			"metadata: {name: a}\n" +
				"spec: {signerName: example.com/a, usages: [digital signature], request: " + sampleSigningRequest + "}",
		},
		Rules:   validate.WithStatus(validateCertificateSigningRequest, validateCertificateSigningRequestUpdate, validateCertificateSigningRequestStatus),
		Columns: certificateSigningRequestColumns,
		Fields:  certificateSigningRequestFields(),
		Spec: registry.SpecOf(func(o *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequestSpec {
			return &o.Spec
		}),
		Status: registry.StatusOf(func(o *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequestStatus {
			return &o.Status
		}), StatusChangesMetadata: true,
		SpecImmutable: true, Stamp: stampRequester, Storages: certificateSigningRequestStorages,
	}
}

func certificateSigningRequestColumns() columns.Printer {
	doc := certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc()
	return columns.Show(func(r *certificatesv1.CertificateSigningRequest, now time.Time) []any {
		asked := columns.None
		if seconds := r.Spec.ExpirationSeconds; seconds != nil {
			asked = duration.HumanDuration(time.Duration(*seconds) * time.Second)
		}
		return []any{r.Name, columns.AgeOf(r, now), columns.OrElse(r.Spec.SignerName, columns.None), r.Spec.Username, asked, certificateState(r)}
	}, columns.Name(), columns.Age(), columns.Text("SignerName", doc["signerName"]), columns.Text("Requestor", doc["request"]),
		columns.Text("RequestedDuration", doc["expirationSeconds"]),
		columns.Text("Condition", certificatesv1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"]))
}

// certificateState returns the state of a request. A denial takes precedence over an approval.
func certificateState(r *certificatesv1.CertificateSigningRequest) string {
	has := func(kind certificatesv1.RequestConditionType) bool {
		return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == kind })
	}
	state := "Pending"
	switch {
	case has(certificatesv1.CertificateDenied):
		state = "Denied"
	case has(certificatesv1.CertificateApproved):
		state = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		state += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		state += ",Issued"
	}
	return state
}

func certificateSigningRequestFields() *selectable.Fields {
	return selectable.Of(selectable.Own("spec.signerName"), func(set fields.Set, o *certificatesv1.CertificateSigningRequest) {
		set["spec.signerName"] = o.Spec.SignerName
	})
}

// A request is checked on creation, and again at each subresource that changes it. Only approval can add the conditions
// Approved and Denied, and only status can set the certificate. Otherwise permission to sign would include permission to
// approve.

// legacySigner was assigned to requests of the beta API without a signer.
const legacySigner = "kubernetes.io/legacy-unknown"

// minCertificateSeconds is the shortest lifetime that a request may contain.
const minCertificateSeconds = 600

func validateCertificateSigningRequest(r *certificatesv1.CertificateSigningRequest) field.ErrorList {
	return certificateRules(r, certificateWrite{})
}

// certificateWrite describes the parts that a write may change, and the stored object. Faults of the stored object are
// tolerated.
type certificateWrite struct {
	approval, certificate bool
	stored                *certificatesv1.CertificateSigningRequest
}

func anyName(string, bool) []string { return nil }

func certificateRules(r *certificatesv1.CertificateSigningRequest, write certificateWrite) field.ErrorList {
	errs := validate.ObjectMeta(&r.ObjectMeta, validate.ClusterScoped, anyName)
	spec, old := field.NewPath("spec"), write.stored
	if err := certificateRequestPEM(r.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(spec.Child("request"), r.Spec.Request, err.Error()))
	}
	errs = append(errs, certificateUsages(r, old, spec.Child("usages"))...)
	if r.Spec.SignerName == legacySigner && (old == nil || old.Spec.SignerName != legacySigner) {
		errs = append(errs, field.Invalid(spec.Child("signerName"), r.Spec.SignerName,
			"the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, validate.SignerName(r.Spec.SignerName, spec.Child("signerName"))...)
	}
	if seconds := r.Spec.ExpirationSeconds; seconds != nil && *seconds < minCertificateSeconds {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), *seconds,
			"may not specify a duration less than 600 seconds (10 minutes)"))
	}
	errs = append(errs, certificateConditions(r, old, field.NewPath("status", "conditions"))...)
	untouched := old != nil && bytes.Equal(r.Status.Certificate, old.Status.Certificate)
	lenient := old != nil && certificatePEM(old.Status.Certificate) != nil
	if err := certificatePEM(r.Status.Certificate); err != nil && !untouched && !lenient {
		errs = append(errs, field.Invalid(field.NewPath("status", "certificate"), "<certificate data>", err.Error()))
	}
	return errs
}

// certificateRequestPEM requires a request that is signed with the key to be certified.
func certificateRequestPEM(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return request.CheckSignature()
}

// certificatePEM refuses blocks other than certificates, because clients install the status as it is.
func certificatePEM(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	blocks := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		blocks++
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		certificates, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certificates) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
	}
	if blocks == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}

var certificateUsageNames = []certificatesv1.KeyUsage{
	certificatesv1.UsageAny, certificatesv1.UsageCRLSign, certificatesv1.UsageCertSign, certificatesv1.UsageClientAuth,
	certificatesv1.UsageCodeSigning, certificatesv1.UsageContentCommitment, certificatesv1.UsageDataEncipherment,
	certificatesv1.UsageDecipherOnly, certificatesv1.UsageDigitalSignature, certificatesv1.UsageEmailProtection,
	certificatesv1.UsageEncipherOnly, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
	certificatesv1.UsageIPsecUser, certificatesv1.UsageKeyAgreement, certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC, certificatesv1.UsageOCSPSigning,
	certificatesv1.UsageSMIME, certificatesv1.UsageServerAuth, certificatesv1.UsageSigning, certificatesv1.UsageTimestamping,
}

func certificateUsages(r, old *certificatesv1.CertificateSigningRequest, path *field.Path) field.ErrorList {
	if len(r.Spec.Usages) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	if old != nil {
		return nil // the spec is immutable
	}
	var errs field.ErrorList
	for i, usage := range r.Spec.Usages {
		errs = append(errs, validate.OneOf(usage, path.Index(i), certificateUsageNames...)...)
		if slices.Contains(r.Spec.Usages[:i], usage) {
			errs = append(errs, field.Duplicate(path.Index(i), usage))
		}
	}
	return errs
}

// finalConditions cannot be removed.
var finalConditions = []certificatesv1.RequestConditionType{
	certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed,
}

func certificateConditions(r, old *certificatesv1.CertificateSigningRequest, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	both := old != nil && decided(old, certificatesv1.CertificateApproved) && decided(old, certificatesv1.CertificateDenied)
	seen := sets.New[certificatesv1.RequestConditionType]()
	for i, c := range r.Status.Conditions {
		at := path.Index(i)
		if c.Type == "" && !decided(old, "") {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		allowed := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
		if slices.Contains(finalConditions, c.Type) {
			allowed = []corev1.ConditionStatus{corev1.ConditionTrue}
		}
		errs = append(errs, validate.Required(c.Status, at.Child("status"), allowed...)...)
		if seen.Has(c.Type) && !repeats(old) {
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		seen.Insert(c.Type)
		decides := c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied
		if decides && !both && seen.HasAll(certificatesv1.CertificateApproved, certificatesv1.CertificateDenied) {
			errs = append(errs, field.Invalid(path, c.Type, "Approved and Denied conditions are mutually exclusive"))
		}
	}
	return errs
}

func conditionsOf(r *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) []certificatesv1.CertificateSigningRequestCondition {
	var found []certificatesv1.CertificateSigningRequestCondition
	if r == nil {
		return nil
	}
	for _, c := range r.Status.Conditions {
		if c.Type == kind {
			found = append(found, c)
		}
	}
	return found
}

func decided(r *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) bool {
	return len(conditionsOf(r, kind)) > 0
}

func repeats(r *certificatesv1.CertificateSigningRequest) bool {
	if r == nil {
		return false
	}
	return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return len(conditionsOf(r, c.Type)) > 1
	})
}

func validateCertificateSigningRequestUpdate(r, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	return certificateChange(r, certificateWrite{stored: old})
}

func validateCertificateSigningRequestStatus(r, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	return certificateChange(r, certificateWrite{stored: old, certificate: true})
}

// CertificateApproval validates an update of r through the approval subresource, where old is the stored request.
func CertificateApproval(r, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	return append(validate.MetaUpdate(r, old), certificateChange(r, certificateWrite{stored: old, approval: true})...)
}

func certificateChange(r *certificatesv1.CertificateSigningRequest, write certificateWrite) field.ErrorList {
	errs := certificateRules(r, write)
	conditions := field.NewPath("status", "conditions")
	for _, kind := range finalConditions {
		before, now := conditionsOf(write.stored, kind), conditionsOf(r, kind)
		guarded := !write.approval && kind != certificatesv1.CertificateFailed
		switch {
		case len(now) < len(before):
			errs = append(errs, field.Forbidden(conditions, fmt.Sprintf("updates may not remove a condition of type %q", kind)))
		case guarded && len(now) > len(before):
			errs = append(errs, field.Forbidden(conditions, fmt.Sprintf("updates may not add a condition of type %q", kind)))
		case guarded && !apiequality.Semantic.DeepEqual(before, now):
			errs = append(errs, field.Forbidden(conditions,
				fmt.Sprintf("updates may not modify a condition of type %q\n%v", kind, diff.Diff(before, now))))
		}
	}
	if bytes.Equal(r.Status.Certificate, write.stored.Status.Certificate) {
		return errs
	}
	certificate := field.NewPath("status", "certificate")
	switch {
	case !write.certificate:
		errs = append(errs, field.Forbidden(certificate, "updates may not set certificate content"))
	case len(write.stored.Status.Certificate) > 0:
		errs = append(errs, field.Forbidden(certificate, "updates may not modify existing certificate content"))
	}
	return errs
}

// sampleSigningRequest is a PEM certificate request for the name "semantics", in base64.
const sampleSigningRequest = "" +
	"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlITk1IWUNBUUF3RkRFU01CQUdBMVVFQXd3SmMyVnRZVzUwYVdO" +
	"ek1Ga3dFd1lIS29aSXpqMENBUVlJS29aSQp6ajBEQVFjRFFnQUVZWXhVdU8ySExXaHlCa04reitrZ1hpem85UUtyd3ZmcURPdXJy" +
	"dTlwUDErRm5VTHRqYXBQCm90dmtTVDBnQStyREVuUm9IQlNnSWtscmNpRXQ3Q2doOEtBQU1Bb0dDQ3FHU000OUJBTUNBMGNBTUVR" +
	"Q0lCUmkKRGlLcjBXVWQvNE9BbHRiMS9WdmVUUnl2djFRNEFHbDNBUXNBdU8vOEFpQVJxZ29JL1E2KzRDQmlxdy9rYWxzawpwTGRk" +
	"MUMrclFFNks4cE0xR1RwQWRRPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg=="
