import torch

from fclseg.methods.rotation import quarter_turns


def test_all_four_rotations_with_their_labels():
    images = torch.rand(3, 1, 8, 8)
    turned, turns = quarter_turns(images)
    assert turns.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    for image, label, index in zip(turned, turns.tolist(), [0, 1, 2] * 4, strict=True):
        assert torch.equal(torch.rot90(image, -label, dims=(1, 2)), images[index])
    assert torch.equal(turned[3:6, 0, 0], images[:, 0, :, -1])  # one turn: the last column becomes the first row
