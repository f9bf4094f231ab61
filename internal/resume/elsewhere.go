// Whether a response of another origin continues a body. A validator says nothing there,
// because two origins may give one entity tag to two versions (RFC 9110 §8.8.1).

package resume

import "net/http"

// A Bridge says how a body can go on at another origin.
type Bridge uint8

const (
	// NoBridge means that it cannot.
	NoBridge Bridge = iota
	// BridgeWhole means that the request brings everything again in any case, and that
	// the response is compared.
	BridgeWhole
	// BridgeDigest means that a range whose response has the digest of the whole
	// representation will do. Its request has no If-Range, because the validator is that
	// of the first origin.
	BridgeDigest
	// BridgeCompare means that everything has to be fetched again, without a Range, and
	// compared.
	BridgeCompare
)

// Bridge returns how the body can go on at another origin now.
func (b *Body) Bridge() Bridge {
	switch {
	case b.compares():
		return BridgeWhole
	case b.partial:
		return NoBridge // the digest and the bytes of the whole are not known
	case b.knowsDigest():
		return BridgeDigest
	case b.prefix != nil && b.prefix.size <= int64(b.left):
		return BridgeCompare
	}
	return NoBridge
}

// knowsDigest reports whether the digest of the whole representation is known. A checksum
// is none, because different bytes may have the same.
func (b *Body) knowsDigest() bool {
	return b.sums != nil && b.sums.whole != nil && !b.sums.whole.isChecksum()
}

// elsewhere checks whether resp, which comes from another origin, continues the body.
func (b *Body) elsewhere(resp *http.Response) (continuation, error) {
	coding, single := encodingOf(resp.Header)
	if resp.Body == nil || resp.Uncompressed || !single || coding != b.encoding {
		return unfit("it comes from another origin, and is encoded in another way")
	}
	if b.knowsDigest() {
		d := digestOf(resp.Header, "Repr-Digest")
		same := d.name == b.sums.whole.name && d.want == b.sums.whole.want
		switch {
		case !same:
			return unfit("it comes from another origin, and does not have the digest of the first response")
		case resp.StatusCode == http.StatusPartialContent:
			return b.continuationBy(resp)
		case resp.StatusCode == http.StatusOK && b.pos <= int64(b.left) && lengthOf(resp) == b.end:
			return continuation{end: b.end, total: b.total, stop: b.end, skip: b.pos, like: b.prefix}, nil
		}
		return unfit("it comes from another origin with status %d", resp.StatusCode)
	}
	if b.prefix == nil || b.prefix.size == tooLong || !b.prefix.agrees(resp) {
		return continuation{}, errHeader
	}
	return continuation{end: b.end, total: b.total, stop: b.end, skip: b.prefix.size, like: b.prefix}, nil
}
