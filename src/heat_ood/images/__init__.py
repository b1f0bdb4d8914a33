"""Images from a folder, a file, a list or tar files, resized, cropped and normalised as a model expects them."""

from ._archives import read_encoded as read_encoded
from ._cutting import Cut as Cut
from ._cutting import spread as spread
from ._decoding import UnreadableImageError
from ._decoding import cause_of as cause_of
from ._decoding import decode_stream as decode_stream
from ._files import images_below as images_below
from ._files import is_image as is_image
from ._opening import open_images
from ._preprocessing import IMAGENET as IMAGENET
from ._preprocessing import Preprocessing
from ._sets import FolderImages as FolderImages
from ._sets import ImageSet

__all__ = ["ImageSet", "Preprocessing", "UnreadableImageError", "open_images"]
