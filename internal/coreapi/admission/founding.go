package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
)

type foundingKey struct{}

// Founding marks a request by which the house brings what every cluster starts with.
func Founding(ctx context.Context) context.Context {
	return context.WithValue(ctx, foundingKey{}, true)
}

func isFounding(ctx context.Context) bool { return ctx.Value(foundingKey{}) != nil }

// afterFounding asks a plugin about everything but the founding.
type afterFounding struct {
	admission.Interface
}

var (
	_ admission.MutationInterface   = afterFounding{}
	_ admission.ValidationInterface = afterFounding{}
)

func (p afterFounding) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	mutating, ok := p.Interface.(admission.MutationInterface)
	if !ok || isFounding(ctx) {
		return nil
	}
	return mutating.Admit(ctx, a, o)
}

func (p afterFounding) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	validating, ok := p.Interface.(admission.ValidationInterface)
	if !ok || isFounding(ctx) {
		return nil
	}
	return validating.Validate(ctx, a, o)
}
