package fleetmsg

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestMessageIsPrinted(t *testing.T) {
	for want, m := range map[string]Message{
		"kind 0":                  {},
		"meet host=http://h.test": {Kind: Meet, Host: "http://h.test"},
		"hold host=http://h.test scope=1f status=429 wait=2s": {
			Kind: Hold, Host: "http://h.test", Scope: 0x1f, Status: 429, Wait: 2 * time.Second},
		`quota host=http://h.test unit="input tokens" wait=1m0s members=3 amount=2.5 limit=10`: {
			Kind: Quota, Host: "http://h.test", Unit: "input tokens", Amount: 2.5, Limit: 10, Wait: time.Minute, Members: 3},
	} {
		assert.Equal(t, want, m.String())
	}
}

// A Message can be compared, and each of its fields is printed.
func TestEveryFieldIsPrinted(t *testing.T) {
	typ := reflect.TypeOf(Message{})
	assert.True(t, typ.Comparable())
	for i := range typ.NumField() {
		var m Message
		switch f := reflect.ValueOf(&m).Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Float64:
			f.SetFloat(7)
		case reflect.Int, reflect.Int64:
			f.SetInt(7)
		default:
			f.SetUint(7)
		}
		assert.NotEqual(t, Message{}.String(), m.String(), typ.Field(i).Name)
	}
}

// No two kinds have the same name or number.
func TestKindsHaveNames(t *testing.T) {
	known := map[string]Kind{}
	for k := range Kind(255) {
		assert.Zero(t, known[k.String()], k)
		known[k.String()] = k
	}
	for _, k := range []Kind{Meet, Hold, Quota, Failing, Working, AskTokens, Members, Down, Up, Tokens, Unused, Leave} {
		assert.NotContains(t, k.String(), "kind ")
	}
}
