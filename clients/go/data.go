package millrace

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Data is a body, result, state or metadata as it travels. Strings and bytes travel as they are,
// every other value as JSON.
type Data []byte

// String is the data as text.
func (d Data) String() string { return string(d) }

// JSON decodes the data into what v points to; ErrBadBody if that fails. A handler that returns
// this error makes its job dead.
func (d Data) JSON(v any) error {
	if err := json.Unmarshal(d, v); err != nil {
		return failure(ErrBadBody, "it is not the JSON that is expected: %v", err)
	}
	return nil
}

// Any is a map or slice if the data is a JSON object or array, or else a string if it is text, or
// else the bytes; nil if there is none.
func (d Data) Any() any {
	var v any
	switch {
	case d == nil:
		return nil
	case len(d) > 0 && (d[0] == '{' || d[0] == '[') && json.Unmarshal(d, &v) == nil:
		return v
	case utf8.Valid(d):
		return string(d)
	}
	return []byte(d)
}

// toData is a value as a word of a command: Data, or the *Error of one that cannot travel.
func toData(value any, what string) any {
	switch v := value.(type) {
	case nil:
		return Data{}
	case Data:
		return append(Data{}, v...) // the caller may change it before it is sent
	case []byte:
		return append(Data{}, v...)
	case string:
		return Data(v)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return failure(ErrBadBody, "the %s cannot be turned into JSON: %v", what, err)
	}
	return Data(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
}
